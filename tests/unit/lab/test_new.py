"""``reverie new`` makes projects that train and pass their own tests as they are."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch

from reverie.core import registry
from reverie.core.errors import ConfigError, RunError
from reverie.lab.new.project import KINDS, class_name, create_project, module_name
from tests.unit.test_project import ROOT, commands_of, parse_command


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(folder: Path, *words: str) -> str:
    """Run make in a project, with this Python. Returns the output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        ["make", *words, f"PYTHON={sys.executable}"], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_passes_its_own_tests(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has loaded everything already."""
    name = f"own_{kind}"
    create_project(kind, name)
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.syspath_prepend(str(tmp_path / name))
    monkeypatch.setattr(registry, "_user_folder", str(tmp_path / name))
    tests = {key: value for key, value in vars(import_module(f"test_{name}")).items() if key.startswith("test_")}
    assert len(tests) >= 2
    for number, test in enumerate(tests.values()):
        (folder := tmp_path / f"runs{number}").mkdir()
        with torch.random.fork_rng():  # a user's test may draw from torch's own generator
            test(**({"tmp_path": folder} if "tmp_path" in signature(test).parameters else {}))
    sys.modules.pop(name)
    sys.modules.pop(f"test_{name}")


def test_a_new_env_is_sound_and_trains_from_its_makefile(tmp_path: Path) -> None:
    create_project("env", "MyWalk")
    arguments = "--steps 512 --quiet video.enabled=false log.report=false"
    assert "no problems found" in make(tmp_path / "my_walk", "check", "train", f"ARGS={arguments}")
    assert (tmp_path / "my_walk" / "runs" / "my_walk-ppo-s0-1" / "config.yaml").is_file()


@pytest.mark.parametrize("kind", KINDS)
def test_its_readme_and_makefile_quote_real_commands(kind: str, tmp_path: Path) -> None:
    import typer

    from reverie.cli.main import app

    create_project(kind, "mine")
    folder = tmp_path / "mine"
    commands = commands_of((folder / "README.md").read_text())
    assert commands
    for words in commands:
        parse_command(typer.main.get_command(app), words)
    lines = subprocess.run(["make", "-n", "train"], cwd=folder, capture_output=True, text=True).stdout
    assert "-m reverie train" in lines


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_our_style(kind: str, tmp_path: Path) -> None:
    """No placeholder is left, and ruff has nothing to correct."""
    paths = create_project(kind, "mine")
    assert all("@" not in path.read_text().replace("@last", "") for path in paths)
    ruff = shutil.which("ruff", path=sysconfig.get_path("scripts"))
    if ruff is not None:
        done = subprocess.run([ruff, "check", "--config", str(ROOT / "pyproject.toml"), "mine"], capture_output=True)
        assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("name", ["MyWalk", "my walk", "my-walk", "my_walk"])
def test_names_become_modules_and_classes(name: str) -> None:
    assert module_name(name) == "my_walk"
    assert class_name("my_walk") == "MyWalk"


@pytest.mark.parametrize("name", ["2fast", "class", "a/b", "", "test_x"])
def test_names_that_cannot_be_modules_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        create_project("env", name)


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'network'"):
        create_project("networks", "mine")
    with pytest.raises(ConfigError, match="already an installed module 'json'"):
        create_project("env", "json")
    create_project("env", "mine", tmp_path / "there")
    with pytest.raises(RunError, match="not empty"):
        create_project("env", "mine", tmp_path / "there")


def test_a_full_disk_leaves_no_half_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(path: Path, text: str, encoding: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(RunError, match="No space left"):
        create_project("env", "mine", tmp_path / "there")
    assert not (tmp_path / "there").exists()
