"""Which key does what."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.envs.keyboard import Keyboard, choose_keys, known_keys
from reverie.envs.make import make_env
from reverie.envs.suite import KeyMap
from reverie.envs.suites.reverie.counting import CountingEnv


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1", "Taxi-v4",
                                    "CliffWalking-v1", "Blackjack-v1", "Reverie/Motion-v0", "Pendulum-v1",
                                    "MountainCarContinuous-v0"])  # fmt: skip
def test_every_known_key_is_an_action_of_its_env(env_id: str) -> None:
    _check_all_keys(EnvConfig(id=env_id))


@pytest.mark.needs("box2d")
@pytest.mark.parametrize("env_id", ["LunarLander-v3", "CarRacing-v3"])
@pytest.mark.parametrize("continuous", [True, False])
def test_every_known_key_is_an_action_of_its_box2d_env(env_id: str, continuous: bool) -> None:
    _check_all_keys(EnvConfig(id=env_id, kwargs={"continuous": continuous}))


def _check_all_keys(config: EnvConfig) -> None:
    env = make_env(config)
    keys = choose_keys(env, config.id)
    is_continuous = isinstance(env.action_space, spaces.Box)
    assert any(keys is known for known in known_keys(is_continuous).values())
    keyboard = Keyboard(keys, env.action_space)
    for held in [set(), *({name} for name in keys.actions if name != "none")]:
        action = keyboard.action(held)
        assert env.action_space.contains(action) or (not held and keys.waits and action is None)
    env.close()


@pytest.mark.needs("box2d")
def test_left_is_left_on_the_moon() -> None:
    speeds = {}
    for key in ("left", "right"):
        env = make_env(EnvConfig(id="LunarLander-v3"))
        keyboard = Keyboard(choose_keys(env, "LunarLander-v3"), env.action_space)
        env.reset(seed=1)
        for _ in range(15):
            observation, *_ = env.step(keyboard.action({key}))
        speeds[key] = observation[2]
        env.close()
    assert speeds["left"] < speeds["right"]


def test_without_a_key_the_cart_is_pushed_both_ways_in_turn() -> None:
    keyboard = Keyboard(known_keys(is_continuous=False)["CartPole"], spaces.Discrete(2))
    assert [keyboard.action(set()) for _ in range(4)] == [0, 1, 0, 1]
    assert keyboard.action({"right", "x"}) == 1


def test_keys_that_are_held_together() -> None:
    keyboard = Keyboard(KeyMap({"a": 1, "a+w": 2, "w": 3}), spaces.Discrete(4))
    assert [keyboard.action(held) for held in ({"a"}, {"a", "w"}, {"w"}, {"x"})] == [1, 2, 3, None]


def test_continuous_actions_add_up_within_their_bounds() -> None:
    space = spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))
    keyboard = Keyboard(known_keys(is_continuous=True)["CarRacing"], space)
    np.testing.assert_allclose(keyboard.action({"left", "up"}), [-1, 1, 0])
    np.testing.assert_allclose(keyboard.action({"left", "right", "down"}), [0, 0, 0.8])
    np.testing.assert_allclose(keyboard.action(set()), [0, 0, 0])
    assert Keyboard(KeyMap({"a": (1,)}), spaces.Box(-1, 1, (1,))).action(set()) is None


def test_other_discrete_envs_take_digits() -> None:
    keys = choose_keys(CountingEnv(start=3), "Reverie/Counting-v0")
    assert keys.actions == {"0": 3, "1": 4, "2": 5, "3": 6}
    assert keys.waits


class Arcade(gym.Env[Any, Any]):
    action_space = spaces.Discrete(18)
    observation_space = spaces.Discrete(1)

    def get_keys_to_action(self) -> dict[tuple[Any, ...], int]:
        return {(): 0, (" ",): 1, ("d", " "): 2, (ord("a"),): 3}


def test_an_env_may_bring_keys_along() -> None:
    actions = choose_keys(Arcade(), "Arcade-v0").actions
    assert actions == {"none": 0, "space": 1, "space+d": 2, "space+right": 2, "a": 3, "left": 3}


def test_keys_of_your_own() -> None:
    assert choose_keys(CountingEnv(), "X", "a=0, d=1,none=2").actions == {"a": 0, "d": 1, "none": 2}
    moving = CountingEnv(action="continuous")
    assert choose_keys(moving, "X", "up=6/1,none=0/0").actions == {"up": (6.0, 1.0), "none": (0.0, 0.0)}


@pytest.mark.parametrize("text", ["a", "a=", "a=x", "a=9", "a=0/1", "a=0,,d=1"])
def test_wrong_keys_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--keys"):
        choose_keys(CountingEnv(), "X", text)


def test_envs_with_unknown_keys_ask_for_some() -> None:
    with pytest.raises(ConfigError, match="no default keys") as caught:
        choose_keys(CountingEnv(action="multi_discrete"), "X")
    assert "--keys" in caught.value.fix
