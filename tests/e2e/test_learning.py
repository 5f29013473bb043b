"""PPO with tuned presets reaches the expected scores, with one seed and a part of the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

import reverie

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time


def scores_of(run: reverie.Run) -> list[float]:
    """Mean returns of all evaluations."""
    return [line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line]


def test_ppo_balances_cartpole(tmp_path: Path) -> None:
    words = ("early_stop=solved", "phases.learn.evaluate.every_steps=5000", "env.vector=sync")
    run = reverie.train("CartPole-v1:ppo", *words, seed=1, runs_dir=tmp_path)
    assert run.status["env_steps"] <= 60_000
    assert max(scores_of(run)) >= 475
    assert run.status["best_score"] == max(scores_of(run))


def test_ppo_learns_from_images(tmp_path: Path) -> None:
    """A single frame does not show the motion. Guessing earns 15.5, the maximum is 31."""
    words = (
        "phases.learn.evaluate.every_steps=4000",
        "env.vector=sync",
        "early_stop=solved",
        "env.spec.solved_at=28",
    )
    run = reverie.train("Reverie/Motion-v0:ppo", *words, seed=1, runs_dir=tmp_path)
    assert run.status["env_steps"] <= 13_000
    assert max(scores_of(run)) >= 28
