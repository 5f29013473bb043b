"""Foresight of a world model without a decoder, from evaluation to the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import api
from tests.e2e.conftest import Command

WORDS = (
    "Reverie/Counting-v0:tests.toy_world_model.ToyWorldModel",
    "buffers.main.kind=rollout",
    "phases=[{name: learn, hooks: [{collect: {rows: 8}}, update, {evaluate: {episodes: 2, every_steps: 16}}], "
    "duration_steps: 40}]",
    "env.vector=sync", "env.num_envs=2", "evaluate.num_envs=2", "evaluate.final_episodes=2",
    "normaliser.observation=off", "evaluate.foresight={context: 2, steps: 3, dreams: 4}", "preflight.enabled=false",
)  # fmt: skip
KEYS = ["reward", "continuation", "value", "latent/step"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    return api.train(*WORDS, seed=1, runs_dir=tmp_path_factory.mktemp("runs"))


def test_evaluations_compare_every_available_prediction(run: api.Run) -> None:
    line = next(line for line in run.metrics() if "evaluate/open_loop/reward/mse" in line)
    squares = [0.5**2, 1.0**2, 1.5**2]  # of a drift of 0.5 per step
    assert min(squares) < line["evaluate/open_loop/latent/step/mse"] < max(squares)
    assert line["evaluate/open_loop/value/mse"] == pytest.approx(4 * line["evaluate/open_loop/reward/mse"])
    assert line["evaluate/held_out/loss_consistency"] == 0.25
    assert not [key for key in line if key.startswith(("evaluate/reconstruction", "evaluate/open_loop/obs"))]


def test_the_command_shows_the_same(run: api.Run, reverie: Command) -> None:
    done = reverie("foresee", run.name, "--runs-dir", str(run.path.parent), "--out", "there")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[2:6]] == KEYS
    assert [path.name for path in Path("there").iterdir()] == ["foresight.json"]


def test_the_report_shows_errors_by_steps_ahead(run: api.Run, tmp_path: Path) -> None:
    page = api.report(str(run.path), out=tmp_path / "page.html").read_text()
    assert "World model" in page
    assert all(f"{key}: error of" in page for key in KEYS)
    assert "reconstruct" not in page
    assert "No part of the model is behind: dynamics and reward pass" in page
