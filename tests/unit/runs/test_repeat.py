"""A run trained again with another seed, from its own config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import reverie
from reverie.cli.main import app
from reverie.core.errors import ConfigError
from reverie.lab.read_run import read_run
from reverie.report.groups import compare
from reverie.report.run_data import gather
from tests.run_folders import write_lines

SMALL = ("video.enabled=false", "log.report=false", "algorithm.gamma=0.5", "evaluate.final_episodes=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repeat")
    return reverie.train("Reverie/Counting-v0:ppo", *SMALL, seed=1, steps=100, runs_dir=folder).path


def test_the_repeat_differs_only_in_its_seed(trained: Path) -> None:
    again = reverie.repeat(trained, 5, runs_dir=trained.parent)
    assert (again.state, again.path.parent) == ("finished", trained.parent)
    first, second = (yaml.safe_load((path / "config.yaml").read_text()) for path in (trained, again.path))
    assert (first.pop("seed"), second.pop("seed")) == (1, 5)
    assert first == second
    assert read_run(trained).config_hash == read_run(again.path).config_hash
    (group,) = compare([gather(path) for path in (trained, again.path)]).groups
    assert {run.seed for run in group.runs} == {"1", "5"}
    assert [d.key for d in gather(again.path).settings.differences] == [
        d.key for d in gather(trained).settings.differences
    ]
    assert "-s5-" in again.name


def test_the_repeat_of_a_seed_is_the_same_run(trained: Path) -> None:
    again = reverie.repeat(trained, 1, runs_dir=trained.parent)
    assert (again.path / "metrics.jsonl").read_text() == (trained / "metrics.jsonl").read_text()


def test_runs_that_their_config_does_not_explain_are_refused(trained: Path) -> None:
    history = trained / "resumes.jsonl"
    change = {"key": "algorithm.gamma", "old": 0.4, "new": 0.5, "keeps_exactness": False}
    write_lines(history, [{"number": 1, "checkpoint": None, "changes": [change]}])
    with pytest.raises(ConfigError, match=r"changed on the way \(algorithm.gamma: 0.4 -> 0.5"):
        reverie.repeat(trained, 7, runs_dir=trained.parent)
    history.unlink()
    (trained / "initial.json").write_text(json.dumps({"source": "x", "weights": {}}))
    with pytest.raises(ConfigError, match="weights of another run"):
        reverie.repeat(trained, 7, runs_dir=trained.parent)
    (trained / "initial.json").unlink()


def test_the_command_repeats_one_seed(trained: Path) -> None:
    done = CliRunner().invoke(app, ["runs", "repeat", str(trained), "--seed", "8", "--quiet", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["state"] == "finished"
    assert "-s8-" in found["run"]


@pytest.mark.measure_processes
def test_the_command_repeats_several_seeds(trained: Path) -> None:
    words = [
        "runs",
        "repeat",
        trained.name,
        "--runs-dir",
        str(trained.parent),
        "--seed",
        "21,22",
        "--jobs",
        "2",
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert [(found["seed"], found["state"]) for found in json.loads(done.stdout)] == [
        (21, "finished"),
        (22, "finished"),
    ]
