"""How episodes end at limits that are known: truncated by the time limit, terminated where the task is over.

Memory Maze, Procgen, PushT, ViZDoom and stable-retro have such tests in their own files.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_vector

FRAMES = {"max_num_frames_per_episode": 400}  # 4 for each step


def case(extra: str, env_id: str, *values: Any, **kwargs: Any) -> Any:
    marks = [pytest.mark.needs(extra)] if extra else []
    return pytest.param(EnvConfig(id=env_id, vector="sync", kwargs=kwargs), *values, marks=marks, id=env_id)


def play(config: EnvConfig, action: int, most_steps: int) -> tuple[list[Row], int | None]:
    """The rows of one episode, at most this many, with the same action in every step; and the declared time limit."""
    rows = []
    with closing(make_vector(config, seed=1, num_envs=1)) as vector:
        actions = np.full((1, *vector.specs.action.shape), action, vector.specs.action.dtype)
        vector.reset()
        while len(rows) < most_steps and not (rows and (rows[-1]["terminated"] | rows[-1]["truncated"])[0]):
            rows.append({key: values.copy() for key, values in vector.step(actions).items()})
        return rows, vector.specs.max_episode_steps


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        case("", "MountainCar-v0", 200),
        case("", "Pendulum-v1", 200),
        case("", "Taxi-v4", 200),
        case("mujoco", "Pusher-v5", 100),
        case("mujoco", "HalfCheetah-v5", 1000),
        case("dmc", "dmc/cheetah_run", 1000),
        case("minigrid", "MiniGrid-Empty-8x8-v0", 256),
        case("atari", "ALE/Breakout-v5", 100, **FRAMES),
        case("robotics", "FetchReach-v4", 50),
        case("robotics", "PointMaze_UMaze-v3", 300),
        case("metaworld", "metaworld/reach-v3", 500),
    ],
)
def test_the_time_limit_truncates(config: EnvConfig, limit: int) -> None:
    rows, declared = play(config, 0, most_steps=limit + 5)
    assert declared == len(rows) == limit
    assert rows[-1]["truncated"][0]
    assert not rows[-1]["terminated"][0]


@pytest.mark.parametrize(
    ("config", "action", "most_steps"),
    [
        case("", "CartPole-v1", 1, 20),  # the pole falls
        case("", "FrozenLake-v1", 2, 60, is_slippery=False, desc=["SFH", "FFF", "FFG"]),  # a hole
        case("box2d", "LunarLander-v3", 0, 200),  # a crash
        case("mujoco", "Hopper-v5", 0, 300),  # a fall
        case("bsuite", "bsuite/catch/0", 0, 9),  # the ball has come down
        case("crafter", "Crafter/Reward", 0, 3000),  # no food and no water
    ],
)
def test_the_end_of_the_task_terminates(config: EnvConfig, action: int, most_steps: int) -> None:
    rows, _ = play(config, action, most_steps)
    assert rows[-1]["terminated"][0]
    assert not rows[-1]["truncated"][0]
