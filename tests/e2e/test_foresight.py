"""Foresight of a world model: recorded in evaluations, written to files, shown in reports, recomputed on demand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie import api
from reverie.runs.verify import verify_run
from reverie.store.run_folder import RunFolder
from tests.e2e.conftest import Command

SMALL = (
    "Reverie/Counting-v0:dreamer", "debug", "env.vector=sync", "env.num_envs=2", "env.kwargs.observation=dict",
    "env.kwargs.varied=true", "**.multipliers=[2,2]", "phases.prefill.duration_steps=40",
    "phases.learn.duration_steps=32",
    "phases.prefill.collect.rows=40", "phases.learn.update.train_ratio=8", "evaluate.num_envs=2",
    "phases.learn.evaluate={episodes: 2, every_steps: 16}", "evaluate.final_episodes=2",
    "evaluate.foresight={context: 2, steps: 3, dreams: 4}", "preflight.probe=false",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    return api.train(*SMALL, seed=1, runs_dir=tmp_path_factory.mktemp("runs"))


def newest(run: api.Run) -> Path:
    return max((run.path / "foresight").iterdir(), key=lambda path: int(path.name))


def test_every_evaluation_records_foresight_metrics(run: api.Run) -> None:
    lines = [line for line in run.metrics() if "evaluate/return_mean" in line]
    assert len(lines) >= 3
    for line in lines:
        for key in ("obs/numbers", "obs/camera", "reward"):
            model, last = (line[f"evaluate/open_loop/{key}/{name}"] for name in ("mse", "repeat_last_mse"))
            assert line[f"evaluate/open_loop/{key}/relative_mse"] == pytest.approx(model / last)
        assert line["evaluate/held_out/loss_reconstruction"] > 0
        assert 0 <= line["evaluate/calibration/continuation_error"] <= 1


def test_videos_images_and_numbers_are_written_to_the_run(run: api.Run) -> None:
    names = {path.stem for path in newest(run).iterdir()}
    assert names == {"open-loop-obs-camera", "reconstruction-obs-camera", "foresight"}
    foresight = json.loads((newest(run) / "foresight.json").read_text())
    assert len(foresight["open_loop"]["obs/numbers"]["mse"]) == 3
    assert foresight["metrics"]["open_loop/reward/mse"] == run.metrics()[-1]["evaluate/open_loop/reward/mse"]


def test_report_shows_the_newest_foresight(run: api.Run, tmp_path: Path) -> None:
    page = api.report(str(run.path), out=tmp_path / "page.html").read_text()
    assert "World model" in page
    assert "Truth above its reconstruction: camera" in page
    assert "data:image/png;base64," in page


def test_run_with_foresight_is_reproducible(run: api.Run) -> None:
    (verdict,) = verify_run(RunFolder(run.path))
    assert verdict.is_reproduced, verdict.differences


def test_foresight_does_not_change_training(run: api.Run, tmp_path: Path) -> None:
    without = api.train(*SMALL, "evaluate.foresight.enabled=false", seed=1, runs_dir=tmp_path)
    assert not (without.path / "foresight").exists()
    assert without.metrics() == [
        {key: value for key, value in line.items() if not key.startswith(FORESIGHT_METRICS)} for line in run.metrics()
    ]


FORESIGHT_METRICS = tuple(f"evaluate/{name}/" for name in ("open_loop", "reconstruction", "calibration", "held_out"))


def test_foresee_from_python_reproduces_the_metrics(run: api.Run, tmp_path: Path) -> None:
    again = api.foresee(str(run.path), out=tmp_path)["metrics"]
    assert again["open_loop/reward/mse"] == run.metrics()[-1]["evaluate/open_loop/reward/mse"]


def test_foresee_command_is_deterministic(run: api.Run, reverie: Command) -> None:
    words = ("foresee", run.name, "--runs-dir", str(run.path.parent), "--steps", "2", "--dreams", "3")
    done = reverie(*words, "--out", "there", "--json")
    assert done.code == 0, done.err
    foresight = json.loads(done.out)
    assert len(foresight["open_loop"]["reward"]["mse"]) == 2
    assert Path("there/foresight.json").is_file()
    again = reverie(*words, "--out", "there", "--json")
    assert json.loads(again.out) == foresight
    other = reverie(*words, "--out", "there", "--json", "--seed", "5")
    assert json.loads(other.out)["metrics"] != foresight["metrics"]
    shown = reverie(*words, "--out", "there")
    assert "repeat last" in shown.out


def test_run_without_a_world_model_is_refused(trained: api.Run, reverie: Command) -> None:
    done = reverie("foresee", trained.name, "--runs-dir", str(trained.path.parent))
    assert done.code != 0
    assert "no world model" in done.err
    assert "With one: dreamer, planet, " in done.err
