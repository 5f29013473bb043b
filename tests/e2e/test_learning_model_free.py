"""DQN, SAC, REINFORCE, tables and bandits learn: short forms of the tuned presets, with one seed each.

What is asked for lies well above what chance or a standstill earns and well below what other seeds reach.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import reverie
from reverie.api import make_config
from reverie.config.build import build, build_evaluator
from reverie.core.types import Array
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session

QUICK = ("env.vector=sync", "evaluate.final_episodes=0", "early_stop=solved")


def best_score(run: reverie.Run) -> float:
    return max(line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line)


def test_dqn_balances(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=100", "phases.1.hooks.2.evaluate.every_steps=1000", "algorithm.network.units=[64,64]")
    words += ("algorithm.epsilon={start: 1.0, end: 0.04, from: 0, to: 4000}", "phases.1.duration_steps=15000")
    run = reverie.train("CartPole-v1:dqn", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 100  # pushing at random lasts for 22 steps


def test_reinforce_balances(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=195", "phases.0.hooks.2.evaluate.every_steps=5000", "phases.0.duration_steps=60000")
    run = reverie.train("CartPole-v1:reinforce", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 195


def test_sac_swings_up(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=-400", "phases.1.hooks.2.evaluate={episodes: 5, every_steps: 500}")
    words += ("algorithm.units=[64,64]", "algorithm.batch_size=64", "phases.1.duration_steps=6000")
    run = reverie.train("Pendulum-v1:sac", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= -400  # an untrained policy earns about -1200


def test_sac_balances_with_choices(tmp_path: Path) -> None:
    words = ("evaluate.final_episodes=0", "phases.1.hooks.2.evaluate={episodes: 5, every_steps: 1000}")
    words += ("algorithm.units=[64,64]", "algorithm.batch_size=64", "algorithm.learning_rate=1e-3", "env.vector=sync")
    run = reverie.train("CartPole-v1:sac", *words, steps=6000, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 150
    temperatures = [line["update/temperature"] for line in run.metrics() if "update/temperature" in line]
    assert 0 < max(temperatures) < 4, "from 1 it comes to 36 where nearly all of the entropy is asked for"


def test_a_table_crosses_the_lake(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=0.6", "phases.0.hooks.2.evaluate.every_steps=10000", "phases.0.duration_steps=60000")
    words += ("algorithm.learning_rate={start: 0.2, end: 0.002, from: 0, to: 60000}",)
    run = reverie.train("FrozenLake-v1:qlearning", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 0.6  # one walk in seventy gets across at random, three in four at best


class RegretWatch:
    """Notes the regret after every pull."""

    def __init__(self) -> None:
        self.curve: list[float] = []

    def end_cycle(self, session: Session) -> None:
        self.curve.append(float(session.collector.now["log/regret"][0]))

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        """Nothing is evaluated."""


def regret_curve(variant: str, seed: int, pulls: int) -> list[float]:
    words = [f"env.max_episode_steps={pulls}", f"phases.0.duration_steps={pulls}"]
    words += ["env.vector=sync", f"phases.0.hooks.2.evaluate.every_steps={2 * pulls}"]
    config = make_config(f"Bandit/Bernoulli-v0:{variant}", words, seed=seed)
    session, watch = build(config), RegretWatch()
    Orchestrator(session, build_evaluator(config), [watch]).run()
    session.close()
    return watch.curve


def determination(x: Array, y: Array) -> float:
    """R2 of a straight line through the points."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def test_the_regret_of_ucb_grows_with_the_logarithm() -> None:
    """As the preset is shipped, for each seed."""
    pulls = 10_000
    times = np.unique(np.geomspace(100, pulls, 50).astype(int))
    for seed in (1, 2):
        regret = np.array(regret_curve("ucb", seed, pulls))[times - 1]
        assert determination(np.log(times), regret) > 0.95
        assert determination(np.log(times), regret) > determination(times, regret) + 0.05
    careless = np.array(regret_curve("epsilon", 1, pulls))[times - 1]
    assert determination(np.log(times), careless) < determination(times, careless)  # it never stops exploring
