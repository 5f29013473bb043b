"""TD-MPC2 learns: a shortened preset with small networks, and one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

import reverie

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time

SMALL = (
    "**.encoder_units=64", "**.latent=32", "**.units=64", "algorithm.batch_size=128", "algorithm.learning_rate=1e-3",
    "algorithm.planner={samples: 64, policy_samples: 8, elites: 12, iterations: 3}",
)  # fmt: skip


def test_tdmpc2_swings_up_the_pendulum(tmp_path: Path) -> None:
    """With random weights it earns about -1200 in an episode."""
    words = ("phases.prefill.duration_steps=300", "phases.pretrain.duration_updates=300", "early_stop=solved")
    words += ("env.spec.solved_at=-400", "env.vector=sync", "evaluate.final_episodes=0", "preflight.enabled=false")
    words += ("phases.learn.duration_steps=900", "phases.learn.evaluate={episodes: 5, every_steps: 150}")
    run = reverie.train("Pendulum-v1:tdmpc2", *SMALL, *words, seed=1, runs_dir=tmp_path)
    scores = [line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line]
    assert max(scores) >= -400
