"""Meta-World: tasks, goals drawn from the seed of an episode, success, frames."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs
from reverie.machine.installation import install_command

pytestmark = pytest.mark.needs("metaworld")
REACH = EnvConfig(id="metaworld/reach-v3")
ACTIONS = make_generator("actions").uniform(-1, 1, (40, 4)).astype(np.float32)


def test_the_goal_is_part_of_the_observation_and_differs_between_episodes() -> None:
    env = make_env(REACH)
    goals = [env.reset(seed=seed)[0][-3:] for seed in (0, 0, 1)]
    np.testing.assert_array_equal(goals[0], goals[1])
    assert not np.array_equal(goals[0], goals[2])
    assert goals[0].any()


@pytest.mark.parametrize("task", ["reach-v3", "door-open-v3", "assembly-v3", "shelf-place-v3"])
def test_an_episode_follows_from_its_seed_alone(task: str) -> None:
    config = EnvConfig(id=f"metaworld/{task}")
    fresh, used = make_env(config), make_env(config)
    used.reset(seed=9)
    for action in ACTIONS:
        used.step(action)
    np.testing.assert_array_equal(fresh.reset(seed=3)[0], used.reset(seed=3)[0])
    for action in ACTIONS:
        one, other = fresh.step(action), used.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]


def test_episodes_are_truncated_after_500_steps() -> None:
    assert make_specs(REACH).max_episode_steps == 500
    env = make_env(REACH)
    env.reset(seed=0)
    ends = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(500)]
    assert set(ends[:-1]) == {(False, False)}
    assert ends[-1] == (False, True)


def test_success_stays_for_the_rest_of_the_episode() -> None:
    env = make_env(REACH)
    observation, info = env.reset(seed=0)
    assert info["success"] == 0
    found = []
    for step in range(80):  # to the goal, then away from it
        way = np.clip(10 * (observation[-3:] - observation[:3]), -1, 1)
        action = np.append(way if step < 60 else -way, 0).astype(np.float32)
        observation, _, _, _, info = env.step(action)
        found.append(info["success"])
    assert found[0] == 0
    assert found[-1] == 1
    assert np.linalg.norm(observation[-3:] - observation[:3]) > 0.05


def test_an_unknown_task_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no task 'reech-v3'") as caught:
        make_env(EnvConfig(id="metaworld/reech-v3"))
    assert "reach-v3" in caught.value.fix


def test_it_is_installed_without_the_mujoco_that_it_asks_for() -> None:
    from reverie.envs.suites.metaworld import SUITE

    assert SUITE.install_hint == f"{install_command('metaworld')} && pip install --no-deps metaworld==3.1.1"


@pytest.mark.needs("gl")
def test_frames_show_something() -> None:
    env = make_env(REACH, "rgb_array")
    env.reset(seed=0)
    frame = np.asarray(env.render())
    env.close()
    assert frame.shape == (256, 256, 3)
    assert frame.std() > 10
