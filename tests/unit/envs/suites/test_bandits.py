"""Bandits: the same arms everywhere, regret by hand, and episodes that can be had again."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.specs import read_specs
from reverie.core.types import Row
from reverie.envs.episode import Episode
from reverie.envs.suites import register_suites
from reverie.envs.suites.bandits import Bandit, BernoulliBandit, ContextualBandit, DriftingBandit, GaussianBandit
from reverie.envs.vector import allocate_rows, row_layout

KINDS: list[type[Bandit]] = [BernoulliBandit, GaussianBandit, DriftingBandit, ContextualBandit]


def play(env: Bandit, actions: list[int], seed: int | None = None) -> list[tuple[Any, ...]]:
    env.reset(seed=seed)
    return [env.step(action)[:2] for action in actions]


@pytest.mark.parametrize("kind", KINDS)
def test_the_arms_are_the_same_in_every_episode(kind: type[Bandit]) -> None:
    env, other = kind(), kind()
    arms = env.means.copy()
    for seed in range(3):
        play(env, [0, 1, 2, 1], seed)
        env.reset(seed=seed + 10)
        assert np.array_equal(env.means, arms)
    assert np.array_equal(other.means, arms)
    assert not np.array_equal(kind(arms_seed=1).means, arms)


def test_the_arms_are_the_same_in_every_process() -> None:
    code = "from reverie.envs.suites.bandits import *; print(BernoulliBandit().means.tolist())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(BernoulliBandit().means.tolist())


def test_sizes() -> None:
    assert GaussianBandit(arms=4).means.shape == (1, 4)
    env = ContextualBandit(arms=3, contexts=2)
    assert env.means.shape == (2, 3)
    assert (env.action_space.n, env.observation_space.n) == (3, 2)  # type: ignore[attr-defined]


def test_chances_are_spread_evenly_in_an_order_of_their_own() -> None:
    assert np.sort(BernoulliBandit().means[0]) == pytest.approx(np.linspace(0.05, 0.95, 10))
    contexts = ContextualBandit().means
    assert np.sort(contexts) == pytest.approx(np.tile(np.linspace(0.1, 0.9, 5), (4, 1)))
    assert len(np.unique(contexts, axis=0)) > 1


def test_bernoulli_pays_with_its_chances() -> None:
    env = BernoulliBandit(arms=3)
    assert ((env.means >= 0) & (env.means <= 1)).all()
    env.reset(seed=1)
    for arm in range(3):
        rewards = [env.step(arm)[1] for _ in range(3000)]
        assert set(rewards) <= {0.0, 1.0}
        assert np.mean(rewards) == pytest.approx(env.means[0, arm], abs=0.04)


def test_gaussian_pays_around_its_means() -> None:
    env = GaussianBandit(arms=2)
    env.reset(seed=1)
    rewards = np.array([env.step(1)[1] for _ in range(4000)])
    assert rewards.mean() == pytest.approx(env.means[0, 1], abs=0.07)
    assert rewards.std() == pytest.approx(1, abs=0.05)


def test_regret_by_hand() -> None:
    env = BernoulliBandit(arms=3)
    env.initial_means = np.array([[0.2, 0.9, 0.5]])
    _, info = env.reset(seed=1)
    assert info["regret"] == 0
    regrets = [env.step(arm)[4]["regret"] for arm in (1, 0, 2, 2, 1)]
    assert regrets == pytest.approx([0, 0.7, 1.1, 1.5, 1.5])
    _, info = env.reset()
    assert info["regret"] == 0
    assert env.step(0)[4]["regret"] == pytest.approx(0.7)


def test_regret_is_that_of_the_context_shown() -> None:
    env = ContextualBandit(arms=2, contexts=2)
    env.initial_means = np.array([[0.1, 0.4], [0.9, 0.2]])
    context, _ = env.reset(seed=3)
    total, contexts = 0.0, set()
    for _ in range(40):
        contexts.add(context)
        total += [0.3, 0.0][context]  # arm 0 is the worse one in context 0 only
        context, _, _, _, info = env.step(0)
        assert info["regret"] == pytest.approx(total)
    assert contexts == {0, 1}


def test_drift_moves_the_arms_and_starts_again() -> None:
    env = DriftingBandit(arms=5, drift=0.5)
    arms = env.means.copy()
    play(env, [0] * 400, seed=1)
    steps = (env.means - arms) / np.sqrt(400)
    assert 0.1 < steps.std() < 1.0
    first = env.means.copy()
    env.reset(seed=2)
    assert np.array_equal(env.means, arms)
    play(env, [0] * 400, seed=1)
    assert np.array_equal(env.means, first)
    still = DriftingBandit(arms=5, drift=0.0)
    play(still, [0] * 10, seed=1)
    assert np.array_equal(still.means, arms)


def test_regret_of_drifting_arms_is_counted_before_they_move() -> None:
    env = DriftingBandit(arms=3, drift=1.0)
    env.reset(seed=4)
    expected = 0.0
    for _ in range(20):
        expected += float(env.means.max() - env.means[0, 2])
        assert env.step(2)[4]["regret"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["Bernoulli", "Gaussian", "Drifting", "Contextual"])
def test_registered_bandits_last_a_thousand_pulls(name: str) -> None:
    register_suites()
    env = gym.make(f"Bandit/{name}-v0", disable_env_checker=True)
    env.reset(seed=1)
    ends = [env.step(0)[2:4] for _ in range(1000)]
    assert ends == [(False, False)] * 999 + [(False, True)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_middle_of_an_episode_can_be_had_again(kind: type[Bandit]) -> None:
    rng = make_generator("pulls")

    def start() -> tuple[Episode, Row]:
        env = kind()
        specs = read_specs(env)
        return Episode(env, specs, ("regret",), 7, "collect", 0, 1), allocate_rows(row_layout(specs, ("regret",)), 1)

    episode, rows = start()
    episode.reset(rows, 0)
    for _ in range(30):
        episode.step(int(rng.integers(5)), rows, 0)
    other, other_rows = start()
    other.load_state(episode.state(), other_rows, 0)
    assert {key: value.tolist() for key, value in rows.items()} == {k: v.tolist() for k, v in other_rows.items()}
    for _ in range(10):
        action = int(rng.integers(5))
        episode.step(action, rows, 0)
        other.step(action, other_rows, 0)
        for key, values in rows.items():
            assert np.array_equal(values, other_rows[key]), key
