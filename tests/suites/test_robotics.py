"""Gymnasium-Robotics: goal observations, success, snapshots, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.goals import make_goals
from reverie.envs.make import make_env, make_specs, make_vector

pytestmark = pytest.mark.needs("robotics")
GOAL_ENVS = ["FetchReach-v4", "HandReach-v3", "PointMaze_UMaze-v3"]
ENVS = [*GOAL_ENVS, "AdroitHandDoor-v1", "FrankaKitchen-v1"]


def play(env_id: str, vector: str = "sync", steps: int = 60, **settings: Any) -> list[Row]:
    config = EnvConfig(id=env_id, vector=vector, log_keys=("success",), **settings)
    made = make_vector(config, seed=1, num_envs=2)
    actions = made.specs.action.sample(make_generator("actions"), 2 * steps).reshape(steps, 2, -1)
    rows = [{key: values.copy() for key, values in made.reset().items()}]
    rows += [{key: values.copy() for key, values in made.step(action).items()} for action in actions]
    made.close()
    return rows


@pytest.mark.parametrize("env_id", GOAL_ENVS)
def test_goals_are_parts_of_the_observation(env_id: str) -> None:
    specs = make_specs(EnvConfig(id=env_id))
    achieved, desired = (specs.observations[f"obs/{key}_goal"] for key in ("achieved", "desired"))
    assert achieved == desired
    assert "obs/observation" in specs.observations


def test_success_is_logged_and_means_that_the_goal_is_reached() -> None:
    rows = play("FetchReach-v4", steps=50)
    for row in rows[1:]:
        distance = np.linalg.norm(row["obs/achieved_goal"] - row["obs/desired_goal"], axis=-1)
        np.testing.assert_array_equal(row["log/success"], distance < 0.05)
        np.testing.assert_array_equal(row["reward"], np.where(distance < 0.05, 0, -1))
    assert rows[50]["truncated"].all()
    assert not rows[50]["terminated"].any()


@pytest.mark.parametrize("env_id", [*GOAL_ENVS, "FetchPickAndPlace-v4", "FetchReachDense-v4"])
def test_rewards_of_other_goals_can_be_computed(env_id: str) -> None:
    goals = make_goals(EnvConfig(id=env_id))
    shape = make_specs(EnvConfig(id=env_id)).observations["obs/achieved_goal"].shape
    here, there = np.zeros((3, *shape), np.float32), np.zeros((3, *shape), np.float32)
    there[1:] = 10
    rewards = goals.rewards(here, there)
    assert rewards.shape == (3,)
    assert rewards[0] > rewards[1] == rewards[2]
    assert goals.terminated is not None
    assert goals.terminated(here, there).shape == (3,)


def test_the_kitchen_succeeds_when_no_task_remains() -> None:
    from reverie.envs.suites.robotics import _is_success

    assert _is_success({"tasks_to_complete": ["kettle"]}) == 0
    assert _is_success({"tasks_to_complete": []}) == 1


@pytest.mark.parametrize("env_id", ENVS)
def test_an_episode_follows_from_its_seed_alone(env_id: str) -> None:
    fresh, used = make_env(EnvConfig(id=env_id)), make_env(EnvConfig(id=env_id))
    actions = make_specs(EnvConfig(id=env_id)).action.sample(make_generator("actions"), 30)
    used.reset(seed=9)
    for action in actions:
        used.step(action)
    for env in (fresh, used):
        env.reset(seed=3)
    for action in actions:
        (one, reward, *_), (other, other_reward, *_) = fresh.step(action), used.step(action)
        assert reward == other_reward
        for left, right in zip(_leaves(one), _leaves(other), strict=True):
            np.testing.assert_array_equal(left, right)


def test_worker_processes_give_the_same_rows() -> None:
    for one, other in zip(play("FetchReach-v4"), play("FetchReach-v4", "process", workers=2), strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.mark.needs("gl")
def test_frames_show_something() -> None:
    env = make_env(EnvConfig(id="FetchReach-v4"), "rgb_array")
    env.reset(seed=0)
    frame = np.asarray(env.render())
    env.close()
    assert frame.std() > 10


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value.values() for leaf in _leaves(part)] if isinstance(value, dict) else [value]
