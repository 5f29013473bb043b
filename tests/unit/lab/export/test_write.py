"""What ``reverie export`` writes where, and what it refuses."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.api import Run
from reverie.core.errors import ConfigError, RunError
from reverie.lab.export.policy_folder import zip_policy
from reverie.lab.export.write import FORMATS
from tests.run_folders import write_run

SMALL = ("env.vector=sync", "phases.learn.collect.rows=64", "algorithm.epochs=1", "evaluate.final_episodes=2")
OBSERVATION = np.array([0.01, -0.02, 0.03, 0.04], np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that tests must not change."""
    runs_dir = tmp_path_factory.mktemp("runs")
    return reverie.train("CartPole-v1:ppo", *SMALL, "monitor.webhook=http://x/secret", steps=64, runs_dir=runs_dir)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_text_is_returned_or_written(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a-s1")
    assert reverie.export("a-s1", format="csv").text.startswith("env,group,runs,iqm")
    exported = reverie.export("a-s1", format="json", out=tmp_path / "new" / "a.json")
    assert exported.path is not None
    assert exported.path.read_text().startswith("[")


@pytest.mark.parametrize(("form", "mark"), [("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_figures_are_named_after_the_runs(form: str, mark: bytes, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs", f"toy-s{seed}", seed=seed)
    first = reverie.export("toy-*", format=form)
    assert first.path is not None
    assert first.path.suffix == f".{form}"
    data = first.path.read_bytes()
    assert data.startswith(mark)
    assert reverie.export("toy-*", format=form).path == first.path
    assert first.path.read_bytes() == data, "equal runs give equal files"


def test_a_policy_folder_acts_like_the_run(trained: Run, tmp_path: Path) -> None:
    exported = reverie.export(trained, format="policy", out=tmp_path / "sent")
    assert exported.path == tmp_path / "sent"
    assert reverie.load(tmp_path / "sent").act(OBSERVATION) == trained.agent().act(OBSERVATION)
    assert reverie.evaluate(tmp_path / "sent", 2)["return_mean"] == reverie.evaluate(trained, 2)["return_mean"]
    everything = "".join(path.read_text() for path in (tmp_path / "sent").rglob("*.*") if path.suffix != ".safetensors")
    assert "secret" not in everything
    assert '"command"' not in everything
    with pytest.raises(RunError, match="exists already"):
        reverie.export(trained, format="policy", out=tmp_path / "sent")


def test_a_zip_holds_the_same_folder(trained: Run, tmp_path: Path) -> None:
    exported = reverie.export(trained, format="zip")
    assert exported.path is not None
    with zipfile.ZipFile(exported.path) as archive:
        archive.extractall(tmp_path)
    assert reverie.load(tmp_path / f"{trained.name}-policy").act(OBSERVATION) == trained.agent().act(OBSERVATION)
    assert zip_policy(trained.path, "best", "x") == zip_policy(trained.path, "best", "x")


def test_the_final_policy_can_be_chosen(trained: Run, tmp_path: Path) -> None:
    reverie.export(trained, format="policy", out=tmp_path / "last", which="final")
    assert [path.name for path in (tmp_path / "last" / "policies").iterdir()] == ["final"]
    assert reverie.load(tmp_path / "last").act(OBSERVATION) == trained.agent("final").act(OBSERVATION)


def test_mistakes_are_explained(trained: Run, tmp_path: Path) -> None:
    runs = trained.path.parent
    with pytest.raises(ConfigError, match="Did you mean 'latex'"):
        reverie.export(format="tex", runs_dir=runs)
    with pytest.raises(ConfigError, match="--data cannot be 'group'"):
        reverie.export(data="group", runs_dir=runs)
    with pytest.raises(RunError, match="No run matches"):
        reverie.export("env=Nothing", runs_dir=runs)
    write_run(tmp_path / "two", "a-s1", final_score=None)
    (tmp_path / "two" / "a-s1" / "metrics.jsonl").unlink()
    write_run(tmp_path / "two", "a-s2")
    with pytest.raises(RunError, match="exports one run, not 2"):
        reverie.export("a*", format="zip", runs_dir=tmp_path / "two")
    with pytest.raises(RunError, match="has been evaluated"):
        reverie.export("final=none", format="pdf", runs_dir=tmp_path / "two")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        reverie.export("a-s2", out=tmp_path / "file" / "x.csv", runs_dir=tmp_path / "two")


def test_every_format_is_documented() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "lab.md"
    text = page.read_text()
    assert all(f"`{form}`" in text for form in FORMATS)
