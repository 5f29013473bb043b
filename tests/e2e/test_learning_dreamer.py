"""Dreamer learns in short runs: CartPole from vectors, and the position of a block from images."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import api

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time

SMALL = (
    "**.deter=64", "**.hidden=32", "**.units=32", "**.bins=63", "env.vector=sync", "evaluate.final_episodes=0",
    "evaluate.foresight.dreams=2", "phases.prefill.collect.rows=100", "phases.prefill.duration_steps=400",
)  # fmt: skip


def scores_of(run: api.Run) -> list[float]:
    return [line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line]


def test_dreamer_improves_on_cartpole(tmp_path: Path) -> None:
    """Random actions balance the pole for about 20 steps."""
    words = ("algorithm.imagine_steps=10", "algorithm.learning_rate=2e-3", "phases.learn.update.train_ratio=32",
             "phases.learn.evaluate={episodes: 5, every_steps: 600}",
             "early_stop=solved", "env.spec.solved_at=50")  # fmt: skip
    run = api.train("CartPole-v1:dreamer", *SMALL, *words, seed=1, steps=3400, runs_dir=tmp_path)
    scores = scores_of(run)
    assert scores[0] < 30
    assert max(scores) >= 50


def test_dreamer_learns_from_images(tmp_path: Path) -> None:
    """Random actions earn 6.6, the best ones 13. The model also learns to decode the block."""
    words = (
        "env.max_episode_steps=16", "env.num_envs=4", "**.depth=4", "**.multipliers=[2,2]", "algorithm.horizon=8",
        "algorithm.model.rssm.stoch=8", "algorithm.imagine_steps=6", "algorithm.learning_rate=2e-3",
        "algorithm.batch_size=8", "algorithm.batch_length=16", "algorithm.optimizer.warmup=50",
        "phases.learn.evaluate={episodes: 10, every_steps: 250}", "phases.learn.update.train_ratio=32",
    )  # fmt: skip
    run = api.train("tests.e2e.centring.CentringEnv:dreamer", *SMALL, *words, seed=1, steps=1300, runs_dir=tmp_path)
    by_chance = [episode["return"] for episode in run.scores()[:20]]  # the random prefill
    assert sum(by_chance) / 20 < 8
    assert max(scores_of(run)) >= 12
    errors = [line["evaluate/reconstruction/obs/mse"] for line in run.metrics() if "evaluate/return_mean" in line]
    assert errors[-1] < 0.5 * errors[0]
