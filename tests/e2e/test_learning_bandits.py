"""Every exploration learns every bandit: its regret is compared with that of random choices."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.core.types import Array
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time


class RegretWatch:
    """Records the regret after every pull."""

    def __init__(self) -> None:
        self.curve: list[float] = []

    def end_cycle(self, session: Session) -> None:
        self.curve.append(float(session.collector.now["log/regret"][0]))

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        """Does not evaluate."""


def regret_curve(spec: str, seed: int, pulls: int, *more: str) -> Array:
    words = [f"env.max_episode_steps={pulls}", f"phases.learn.duration_steps={pulls}", *more]
    words += ["env.vector=sync", f"phases.learn.evaluate.every_steps={2 * pulls}"]
    config = make_config(f"Bandit/{spec}", words, seed=seed)
    session, watch = build(config), RegretWatch()
    Orchestrator(session, build_evaluator(config), [watch]).run()
    session.close()
    return np.array(watch.curve)


def determination(x: Array, y: Array) -> float:
    """R² of a straight line through the points."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def test_the_regret_of_ucb_grows_with_the_logarithm() -> None:
    """Runs of the shipped preset, one per seed."""
    pulls = 10_000
    times = np.unique(np.geomspace(100, pulls, 50).astype(int))
    for seed in (1, 2):
        regret = regret_curve("Bernoulli-v0:ucb", seed, pulls)[times - 1]
        assert determination(np.log(times), regret) > 0.95
        assert determination(np.log(times), regret) > determination(times, regret) + 0.05
    times = times[times <= 3000]
    careless = regret_curve("Bernoulli-v0:epsilon", 1, 3000)[times - 1]
    assert determination(np.log(times), careless) < determination(times, careless)  # it never stops exploring


def late_regret(spec: str, *more: str) -> float:
    """Regret per pull in the second half of 1,000 pulls."""
    curve = regret_curve(spec, 1, 1000, *more)
    return float(curve[-1] - curve[499]) / 500


@cache
def regret_of_chance(env: str) -> float:
    return late_regret(f"{env}:epsilon", "algorithm.exploration.epsilon=1")


@pytest.mark.parametrize("variant", ["epsilon", "ucb", "thompson"])
@pytest.mark.parametrize("env", ["Bernoulli-v0", "Gaussian-v0", "Contextual-v0", "Drifting-v0"])
def test_every_exploration_learns_every_bandit(env: str, variant: str) -> None:
    assert late_regret(f"{env}:{variant}") < 0.4 * regret_of_chance(env)
