"""Envs that are given as Python objects."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, max_episode_steps_of, resolve_vector
from reverie.envs.objects import describe_object


class Corridor(gym.Env[Any, Any]):
    """Ends after ``length`` steps."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 3, render_mode: str | None = None) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(1, self.steps, np.float32), float(action), self.steps >= self.length, False, {}


class Unrecorded(gym.Wrapper[Any, Any, Any, Any]):
    """Gymnasium does not know how it was made."""


def make_corridor() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Corridor(), 7)


def test_what_can_be_imported_becomes_a_dotted_path() -> None:
    assert describe_object(Corridor) == (f"{__name__}.Corridor", {})
    assert describe_object(make_corridor) == (f"{__name__}.make_corridor", {})
    assert max_episode_steps_of(make_env(EnvConfig(id=f"{__name__}.make_corridor"))) == 7
    assert describe_object("CartPole-v1") == ("CartPole-v1", {})


def test_anything_else_that_makes_envs_works_in_this_process() -> None:
    class Local(Corridor):
        pass

    make = lambda: Corridor(5)  # noqa: E731 - the very thing
    name, settings = describe_object(make)
    assert (name, settings) == ("Python/env", {})
    assert describe_object(make)[0] == name
    assert describe_object(lambda: Corridor(6))[0] == "Python/env-2"
    assert describe_object(Local)[0] == "Python/Local"
    assert make_env(EnvConfig(id=name)).unwrapped.length == 5  # type: ignore[attr-defined]
    assert make_env(EnvConfig(id="Python/env-2")).unwrapped.length == 6  # type: ignore[attr-defined]
    assert isinstance(make_env(EnvConfig(id="Python/Local")).unwrapped, Local)
    config = EnvConfig(id=name, num_envs=8, workers=2)
    assert resolve_vector(config, make_env(config)) == "sync"


def test_a_made_env_is_described_by_what_made_it() -> None:
    assert describe_object(gym.make("CartPole-v1", render_mode="rgb_array")) == ("CartPole-v1", {})
    made = gym.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=50)
    settings = {"env.kwargs": {"sutton_barto_reward": True}, "env.max_episode_steps": 50}
    assert describe_object(made) == ("CartPole-v1", settings)


def test_wrappers_of_a_made_env_are_made_again() -> None:
    made = gym.wrappers.TimeAwareObservation(gym.make("CartPole-v1", max_episode_steps=50))
    name, settings = describe_object(made)
    again = make_env(EnvConfig(id=name))
    assert (name, settings) == ("Python/CartPoleEnv", {})
    assert again.observation_space == made.observation_space
    assert max_episode_steps_of(again) == 50
    again.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Corridor(5), ["This Corridor cannot be copied", "train(lambda: Corridor(...))", "env.kwargs"]),
        (Unrecorded(gym.make("CartPole-v1")), ["its wrapper Unrecorded", "train(lambda: Unrecorded("]),
        (gym.make_vec("CartPole-v1", 2, "sync"), ["vector of envs", "env.num_envs"]),
        (int, ["The class int is not a Gymnasium environment"]),
        (42, ["Cannot train on 42, of type int", "gymnasium.make"]),
        (None, ["Cannot train on None"]),
        (["x" * 99], ["...", "of type list"]),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_what_can(given: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        describe_object(given)
    assert all(word in str(caught.value) for word in words)


def test_an_object_of_another_program_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"passed to train\(\) as a Python object(.|\n)*top level of a module"):
        make_env(EnvConfig(id="Python/gone"))
    with pytest.raises(ConfigError, match="__main__ is the script or notebook that defined it"):
        make_env(EnvConfig(id="__main__.Gone"))
