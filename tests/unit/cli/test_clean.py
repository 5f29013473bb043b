"""``reverie runs clean`` and ``restore`` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reverie.cli.main import app
from reverie.core.errors import ConfigError
from tests.run_folders import write_run

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    for name, score in (("good", 9.0), ("bad", 1.0)):
        run = write_run(tmp_path / "runs", name, scores=(score,))
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "data").write_bytes(b"x" * 2000)
    return tmp_path / "runs"


def run(*words: str, answer: str = "", code: int = 0) -> str:
    result = RUNNER.invoke(app, ["runs", *words], input=answer)
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_a_dry_run_changes_nothing(runs: Path) -> None:
    text = run("clean", "--keep-best", "1", "--dry-run")
    assert "1 run would free 2.0 kB. Configs and metrics stay.\nKept: 1 among the best 1 of their env." in text
    assert "bad" in text
    assert (runs / "bad" / "checkpoints").exists()


def test_it_asks_first(runs: Path) -> None:
    run("clean", "--keep-best", "1", answer="n\n")
    assert (runs / "bad" / "checkpoints").exists()
    text = run("clean", "--keep-best", "1", answer="y\n")
    assert "Undo: reverie runs restore" in text
    assert not (runs / "bad" / "checkpoints").exists()
    assert (runs / "good" / "checkpoints").exists()


def test_the_trash_is_shown_restored_and_emptied(runs: Path) -> None:
    run("clean", "bad", "--yes")
    assert "The trash holds parts of 1 run; emptying it frees 2.0 kB" in run("clean", "bad", "--dry-run")
    assert run("restore", "bad") == "Restored: bad\n"
    assert (runs / "bad" / "checkpoints" / "data").exists()
    run("clean", "bad", "--yes")
    assert "Freed 2.0 kB" in run("clean", "--empty-trash", answer="y\n")
    assert list((runs / ".trash").iterdir()) == []


def test_now_frees_at_once(runs: Path) -> None:
    assert "Freed 2.0 kB of 1 run." in run("clean", "bad", "--now", "--yes")
    assert not (runs / ".trash").exists()


def test_json_shows_the_plan_and_never_asks(runs: Path) -> None:
    found = json.loads(run("clean", "bad", "--json", "--dry-run"))
    assert found["runs"] == [{"run": "bad", "parts": ["checkpoints"], "bytes": 2000}]
    assert found["cleaned"] == []
    assert "add --yes or --dry-run" in run("clean", "bad", "--json", code=2).replace("\n", " ")
    done = json.loads(run("clean", "bad", "--json", "--yes"))
    assert (done["cleaned"], done["bytes"]) == (["bad"], 2000)
    assert json.loads(run("clean", "--empty-trash", "--json", "--dry-run"))["in_trash"] == ["bad"]


def test_cleaning_everything_by_accident_is_refused() -> None:
    with pytest.raises(ConfigError, match="would clean all runs"):
        run("clean")
    with pytest.raises(ConfigError, match="would clean all runs"):
        run("clean", "--keep-policies")
    assert "not a duration" in run("clean", "--older-than", "soon", code=2)
