"""Crafter as a Gymnasium env: seeds decide episodes, achievements are numbers, deaths are ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs
from reverie.envs.suites.crafter import crafter_score
from reverie.envs.vector import SyncVector
from reverie.training.evaluator import EpisodeScore, summarise

pytestmark = pytest.mark.needs("crafter")
KEYS = ("achievement_collect_sapling", "achievement_wake_up")


def play(env: Any, seed: int, steps: int = 30) -> list[Any]:
    seen = [env.reset(seed=seed)[0]]
    for action in make_generator(seed, "actions").integers(0, 17, steps).tolist():
        image, reward, *_ = env.step(action)
        seen += [image, reward]
    return seen


def test_what_it_shows_and_takes() -> None:
    specs = make_specs(EnvConfig(id="Crafter/Reward"))
    assert specs.observations["obs"].shape == (64, 64, 3)
    assert specs.observations["obs"].kind == "image"
    assert specs.action.classes == (17,)
    assert specs.max_episode_steps == 10_000
    assert make_specs(EnvConfig(id="Crafter/Reward", kwargs={"size": 32})).observations["obs"].shape == (32, 32, 3)


def test_it_can_be_drawn_larger_than_it_is_seen() -> None:
    env = make_env(EnvConfig(id="Crafter/Reward"), "rgb_array")
    seen, _ = env.reset(seed=0)
    drawn: Any = env.render()
    assert min(drawn.shape[:2]) > 2 * len(seen)
    assert drawn.std() > 10
    assert env.step(0)[0].shape == seen.shape


@pytest.mark.no_cover  # tracing doubles the time
def test_an_episode_follows_from_its_seed_alone() -> None:
    fresh, used = (make_env(EnvConfig(id="Crafter/Reward")) for _ in range(2))
    play(used, 5, 20)  # other episodes before leave no trace
    for one, other in zip(play(fresh, 3), play(used, 3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(play(fresh, 4)[0], play(used, 3)[0])


def test_achievements_are_logged_and_reward_can_be_left_out() -> None:
    collected = {}
    for name in ("Reward", "NoReward"):
        vector = SyncVector(EnvConfig(id=f"Crafter/{name}", log_keys=KEYS), 0, "collect", 1)
        vector.reset()
        rows = [vector.step(np.array([action])) for action in [5] * 3 + [0] * 3]
        collected[name] = rows
        assert all(row[f"log/{key}"].dtype == np.float32 for row in rows for key in KEYS)
        vector.close()
    assert all(row["reward"] == 0 for row in collected["NoReward"])


def test_the_first_achievement_of_an_episode_is_worth_one() -> None:
    env = make_env(EnvConfig(id="Crafter/Reward"))
    player = env.unwrapped._game  # type: ignore[attr-defined]
    env.reset(seed=0)
    player._player.achievements["eat_cow"] = 1
    _, reward, terminated, _, info = env.step(0)
    assert reward == pytest.approx(1.0, abs=0.11)
    assert info["achievement_eat_cow"] == 1
    assert not terminated
    player._player.health = 0
    assert env.step(0)[2]


def test_the_score_is_the_geometric_mean_of_the_paper() -> None:
    assert crafter_score(np.zeros(22)) == 0
    assert crafter_score(np.ones(22)) == pytest.approx(100)
    # One of two achievements in every episode, the other never: sqrt(101 * 1) - 1.
    assert crafter_score(np.array([1.0, 0.0])) == pytest.approx(np.sqrt(101) - 1)


def test_evaluations_have_the_score_if_all_achievements_are_logged() -> None:
    def scores(names: list[str]) -> list[EpisodeScore]:
        """Two episodes: every achievement in the first, the first achievement in both, twice in the second."""
        first = {f"log/achievement_{name}": 1.0 for name in names}
        second = {key: 2.0 if index == 0 else 0.0 for index, key in enumerate(first)}
        return [EpisodeScore(0, 1.0, 9, first), EpisodeScore(1, 0.0, 9, second)]

    names = [str(number) for number in range(22)]
    found = summarise(scores(names), 0, "Crafter/Reward")["crafter_score"]
    assert found == pytest.approx((101 * 51**21) ** (1 / 22) - 1)
    assert "crafter_score" not in summarise(scores(names[1:]), 0, "Crafter/Reward")
    assert "crafter_score" not in summarise(scores(names), 0, "CartPole-v1")
