"""Every algorithm bootstraps through time limits: a reward of 1 for ever is worth 1 / (1 - gamma), cut or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from reverie.api import make_config
from reverie.config.build import build, build_evaluator
from reverie.core import registry
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session


def ppo_value(session: Session) -> float:
    algorithm: Any = session.algorithm
    with torch.no_grad():
        return float(algorithm.model.value({"obs": torch.ones(1, 1)}))


CASES: dict[str, tuple[list[str], Callable[[Session], float]]] = {
    "ppo": (
        ["env.num_envs=4", "phases.0.hooks.0.collect.rows=256", "phases.0.duration_steps=12000",
         "algorithm.gamma=0.9", "algorithm.learning_rate=3e-3", "algorithm.epochs=5"],
        ppo_value,
    ),
}  # fmt: skip


def test_every_algorithm_is_covered() -> None:
    assert set(CASES) == set(registry.kinds("algorithm"))


@pytest.mark.parametrize("kind", CASES)
def test_values_bootstrap_through_the_time_limit(kind: str) -> None:
    words, value_of = CASES[kind]
    config = make_config(f"Reverie/Constant-v0:{kind}", words, seed=1)
    session, evaluator = build(config), build_evaluator(config)
    Orchestrator(session, evaluator).run()
    assert value_of(session) == pytest.approx(10, rel=0.05)
    session.close()
