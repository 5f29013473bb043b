from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector
from reverie.envs.suites.reverie.counting import (
    ACTION,
    CHECKSUM,
    EPISODE,
    STEP,
    CountingEnv,
    episode_name,
    read_counting,
)
from reverie.envs.suites.reverie.motion import MotionEnv


def _numbers(observation: str, action: str, given: Any) -> np.ndarray[Any, Any]:
    kwargs = {"observation": observation, "action": action}
    vector = make_vector(EnvConfig(id="Reverie/Counting-v0", kwargs=kwargs, vector="sync"), 0)
    vector.reset()
    vector.step(np.array([given]))
    return read_counting(vector.step(np.array([given])))[0]


@pytest.mark.parametrize("observation", ["vector", "image", "dict", "tuple"])
@pytest.mark.parametrize(
    ("action", "given", "received"),
    [
        ("discrete", 3, 3),
        ("continuous", [0.5, 0], 4),
        ("unbounded", [-2.5, 0], -2.5),
        ("multi_discrete", [2, 1], 9),
        ("multi_binary", [1, 0, 1], 5),
        ("mixed", [3, 1, 0, 1, 0.5, 0], 8 * 3 + 5 + 4),
    ],
)
def test_any_observation_tells_what_was_received(observation: str, action: str, given: Any, received: float) -> None:
    numbers = _numbers(observation, action, given)
    assert (numbers[STEP], numbers[ACTION]) == (2, received)
    assert numbers.tolist() == _numbers("vector", action, given).tolist()


def test_the_checksum_tells_orders_of_actions_apart() -> None:
    def checksum(*actions: int) -> float:
        env = CountingEnv()
        env.reset(seed=1)
        return float([env.step(action)[0] for action in actions][-1][CHECKSUM])

    assert checksum(1, 2, 3) == checksum(1, 2, 3)
    assert len({checksum(1, 2, 3), checksum(2, 1, 3), checksum(1, 3, 3)}) == 3


def test_episodes_are_named_by_their_seed_and_vary_in_length() -> None:
    lengths = set()
    for seed in range(2_000_000, 2_000_020):
        env = CountingEnv(length=7, varied=True)
        assert env.reset(seed=seed)[0][EPISODE] == episode_name(seed)
        lengths.add(next(step for step in range(1, 9) if env.step(0)[2]))
    assert lengths == set(range(1, 8))


def _directions(frames: list[np.ndarray[Any, Any]]) -> list[int]:
    """Which way the blob went between frames, by looking: the shift that maps one onto the next."""
    return [int(np.array_equal(np.roll(old, MotionEnv.stride, 1), new)) for old, new in itertools.pairwise(frames)]


def test_who_compares_two_frames_gets_the_best_return() -> None:
    env = make_env(EnvConfig(id="Reverie/Motion-v0"))
    frames, total, truncated, seen = [env.reset(seed=3)[0]], 0.0, False, []
    while not truncated:
        action = _directions(frames[-2:])[0] if len(frames) > 1 else 0
        frame, reward, terminated, truncated, _ = env.step(action)
        frames.append(frame)
        seen.append(action)
        total += float(reward)
        assert not terminated
    assert (total, len(frames)) == (31, 33)
    assert {0, 1} <= set(seen[1:])


def test_one_frame_or_a_fixed_answer_earns_about_half() -> None:
    vector = make_vector(EnvConfig(id="Reverie/Motion-v0", vector="sync", num_envs=20), 0)
    vector.reset()
    places, directions, total = [], [], 0.0
    previous = None
    for _ in range(32):
        row = vector.step(np.ones(20, np.int64))
        total += float(row["reward"].sum())
        place = np.argmax(row["obs"][..., 0].max(1), axis=1)
        if previous is not None:
            places.append(place)
            directions.append((place - previous) % 64 < 32)
        previous = place
    assert 10 < total / 20 < 21
    assert abs(np.corrcoef(np.concatenate(places), np.concatenate(directions))[0, 1]) < 0.25


def test_the_constant_env_pays_one_until_it_is_cut() -> None:
    vector = make_vector(EnvConfig(id="Reverie/Constant-v0", vector="sync"), 0)
    vector.reset()
    rng = make_generator("test")
    rows = [vector.step(vector.specs.action.sample(rng, 1)) for _ in range(20)]
    assert [float(row["reward"][0]) for row in rows] == [1.0] * 20
    assert [bool(row["truncated"][0]) for row in rows] == [False] * 19 + [True]
    assert not any(row["terminated"][0] for row in rows)
