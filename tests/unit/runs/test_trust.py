"""Runs that were made here are known by an HMAC of their config, and others are not."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reverie.runs.trust import is_made_here, own_names
from reverie.store import signature
from reverie.store.signature import sign_config

CONFIG = "seed: 1\nenv: {id: my_module.Env}\nalgorithm: {kind: ppo, network: {kind: my_module.Network}}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def key(home: Path) -> Path:
    return home / "reverie" / "key"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A signed run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    sign_config(folder, CONFIG)
    return folder


def test_a_signed_config_trusts_the_names_in_it(run: Path) -> None:
    assert own_names(run) == {"my_module.Env", "my_module.Network"}


def test_an_edited_config_is_not_the_users(run: Path) -> None:
    (run / "config.yaml").write_text(CONFIG.replace("seed: 1", "seed: 2"))
    assert not is_made_here(run)


def test_a_run_without_a_signature_is_a_strangers(run: Path) -> None:
    (run / signature.FILE).unlink()
    assert not is_made_here(run)


def test_a_signature_of_another_machine_counts_for_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    assert not is_made_here(run)


def test_configs_that_a_resume_has_replaced_are_the_users_too(run: Path) -> None:
    new = CONFIG.replace("my_module.Network", "other.Network")
    sign_config(run, new)
    (run / "config-before-resume-1.yaml").write_text(CONFIG)
    (run / "config-before-resume-2.yaml").write_text("algorithm: {kind: planted.Agent}")
    (run / "config.yaml").write_text(new)
    assert own_names(run) == {"my_module.Env", "my_module.Network", "other.Network"}


def test_inside_of_a_run_folder_nothing_is_trusted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that lie there are what the names would lead to, and those are not signed."""
    (run / "videos").mkdir()
    monkeypatch.chdir(run / "videos")
    assert not is_made_here(run)


@pytest.mark.parametrize("text", ["a: [", "- list\n", "\0"])
def test_what_is_no_config_names_nothing(run: Path, text: str) -> None:
    (run / "config.yaml").write_text(text)
    sign_config(run, text)
    assert own_names(run) == set()


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    (run / "config.yaml").rename(tmp_path / "elsewhere.yaml")
    (run / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert not is_made_here(run)


def test_the_key_is_private(run: Path, key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    assert [path.name for path in key.parent.iterdir()] == ["key"]


def test_processes_that_start_together_take_one_key(key: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: signature._load_key(), range(32)))
    assert keys == {key.read_bytes()}


@pytest.mark.parametrize("spoil", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"short")])
def test_a_spoilt_key_is_replaced(run: Path, key: Path, spoil: object) -> None:
    spoil(key)  # type: ignore[operator]
    assert not is_made_here(run)
    sign_config(run, CONFIG)
    assert is_made_here(run)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_the_key_of_another_user_is_left_alone(run: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key.read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not is_made_here(run)
    sign_config(run, CONFIG)
    assert key.read_bytes() == before


def test_without_a_place_for_a_key_nothing_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    sign_config(tmp_path, CONFIG)
    assert not (tmp_path / signature.FILE).exists()


def test_the_key_is_in_the_home_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    sign_config(tmp_path, CONFIG)
    assert (tmp_path / ".config" / "reverie" / "key").exists()
