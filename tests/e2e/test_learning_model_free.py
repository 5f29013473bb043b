"""DQN, SAC, REINFORCE and Q-learning learn: shortened tuned presets, with one seed each.

The thresholds are well above the returns of random or constant actions and well below those of other seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import reverie

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time

QUICK = ("env.vector=sync", "evaluate.final_episodes=0", "early_stop=solved")


def best_score(run: reverie.Run) -> float:
    return max(line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line)


def test_dqn_balances_cartpole(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=100", "phases.learn.evaluate.every_steps=1000", "algorithm.network.units=[64,64]")
    words += ("algorithm.epsilon={start: 1.0, end: 0.04, from: 0, to: 4000}", "phases.learn.duration_steps=15000")
    run = reverie.train("CartPole-v1:dqn", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 100  # pushing at random lasts for 22 steps


def best_flipping_return(tmp_path: Path, *words: str) -> float:
    """Of eight bits, which a random agent hardly ever flips into the right pattern: the return is then -8."""
    words += ("phases.prefill.duration_steps=500", "phases.prefill.collect.rows=100", "buffers.main.min_rows=100")
    words += ("phases.learn.evaluate={episodes: 20, every_steps: 1000}", "phases.learn.duration_steps=2100")
    words += ("phases.learn.collect.rows=8", "phases.learn.update.updates=4", "algorithm.network.units=[128]")
    words += ("algorithm.learning_rate=3e-3", "algorithm.target_rate=0.05", "algorithm.gamma=0.95")
    words += ("algorithm.epsilon={start: 1.0, end: 0.1, from: 0, to: 1500}", "algorithm.batch_size=64")
    spec = "tests.toy_goals.BitFlipping:dqn"
    return best_score(reverie.train(spec, "evaluate.final_episodes=0", "env.vector=sync", *words, runs_dir=tmp_path))


def test_dqn_learns_to_flip_bits_with_hindsight_and_not_without(tmp_path: Path) -> None:
    assert best_flipping_return(tmp_path / "plain") < -7
    assert best_flipping_return(tmp_path / "hindsight", "buffers.main.hindsight.ratio=0.8") > -5


def test_reinforce_balances_cartpole(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=195", "phases.learn.evaluate.every_steps=5000", "phases.learn.duration_steps=60000")
    run = reverie.train("CartPole-v1:reinforce", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 195


def test_sac_swings_up_the_pendulum(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=-400", "phases.learn.evaluate={episodes: 5, every_steps: 500}")
    words += ("algorithm.units=[64,64]", "algorithm.batch_size=64", "phases.learn.duration_steps=6000")
    run = reverie.train("Pendulum-v1:sac", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= -400  # an untrained policy earns about -1200


def test_discrete_sac_balances_cartpole(tmp_path: Path) -> None:
    words = ("evaluate.final_episodes=0", "phases.learn.evaluate={episodes: 5, every_steps: 1000}")
    words += ("algorithm.units=[64,64]", "algorithm.batch_size=64", "algorithm.learning_rate=1e-3", "env.vector=sync")
    run = reverie.train("CartPole-v1:sac", *words, steps=4000, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 150
    temperatures = [line["update/temperature"] for line in run.metrics() if "update/temperature" in line]
    assert 0 < max(temperatures) < 4, "from 1 it keeps growing where nearly all of the entropy is asked for"


def test_qlearning_solves_frozen_lake(tmp_path: Path) -> None:
    words = ("env.spec.solved_at=0.6", "phases.learn.evaluate.every_steps=10000", "phases.learn.duration_steps=60000")
    words += ("algorithm.learning_rate={start: 0.2, end: 0.002, from: 0, to: 60000}",)
    run = reverie.train("FrozenLake-v1:qlearning", *QUICK, *words, seed=1, runs_dir=tmp_path)
    assert best_score(run) >= 0.6  # one walk in seventy gets across at random, three in four at best
