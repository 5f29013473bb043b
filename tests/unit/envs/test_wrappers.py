from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pydantic import ValidationError

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs


class Scripted(gym.Env[Any, Any]):
    """Shows a given list of observations and pays a given list of rewards, then ends."""

    def __init__(self, space: spaces.Space[Any], observations: Sequence[Any], rewards: Sequence[float] = ()) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.observations, self.rewards, self.place = observations, rewards, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.place = 0
        return self.observations[0], {}

    def step(self, action: Any) -> Any:
        self.place += 1
        reward = self.rewards[self.place - 1] if self.rewards else 0.0
        return self.observations[self.place], reward, self.place == len(self.observations) - 1, False, {}


def _wrap(env: gym.Env[Any, Any], kind: str, **settings: Any) -> gym.Env[Any, Any]:
    wrapper = registry.load("wrapper", kind)
    wrapped: gym.Env[Any, Any] = wrapper(env, wrapper.Config(**settings))
    return wrapped


def _images(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def _first(env: gym.Env[Any, Any]) -> Any:
    observation = env.reset()[0]
    assert env.observation_space.contains(observation)
    return observation


def test_masked_observations_keep_what_they_are_told() -> None:
    inner = spaces.Dict(
        {"list": spaces.Box(np.arange(4), np.arange(4) + 1, dtype=np.float32), "index": spaces.Discrete(3)}
    )
    env = _wrap(
        Scripted(inner, [{"list": np.arange(4, dtype=np.float32), "index": 2}]), "mask_observation", keep=(3, 0)
    )
    assert env.observation_space["list"] == spaces.Box(np.array([3, 0]), np.array([4, 1]), dtype=np.float32)  # type: ignore[index]
    observation = _first(env)
    assert (observation["list"].tolist(), observation["index"]) == ([3, 0], 2)


@pytest.mark.parametrize("keep", [(), (-1,)])
def test_a_mask_keeps_something(keep: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        registry.load("wrapper", "mask_observation").Config(keep=keep)


def test_a_mask_cannot_keep_what_is_not_there() -> None:
    with pytest.raises(ConfigError, match="cannot keep 4, 9: the observation has 4 numbers, 0-3"):
        _wrap(make_env(EnvConfig(id="CartPole-v1")), "mask_observation", keep=(0, 4, 9))
    with pytest.raises(ConfigError, match="needs a vector"):
        _wrap(make_env(EnvConfig(id="FrozenLake-v1")), "mask_observation", keep=(0,))


@pytest.mark.parametrize("kind", registry.kinds("wrapper"))
def test_the_default_kind_is_the_registered_name(kind: str) -> None:
    assert registry.load("wrapper", kind).Config.model_fields["kind"].default == kind


def test_grayscale_weighs_the_colours() -> None:
    image = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    env = _wrap(Scripted(_images(1, 4, 3), [image]), "grayscale")
    assert _first(env).tolist() == [[[76], [150], [29], [255]]]


def test_resize_takes_the_mean_of_areas() -> None:
    image = np.array([[0, 40, 10, 10], [80, 120, 10, 10]], np.uint8)
    for shape in ((2, 4), (2, 4, 1), (2, 4, 2), (2, 4, 3)):
        full = image if len(shape) == 2 else np.repeat(image[..., None], shape[2], axis=2)
        small = _first(_wrap(Scripted(_images(*shape), [full]), "resize", height=1, width=2))
        assert small.shape == (1, 2, *shape[2:])
        assert small.reshape(2, -1)[:, -1].tolist() == [60, 10]


def test_frames_are_stacked_in_the_last_axis_and_padded_with_the_first() -> None:
    frames = [np.full((1, 1, 2), value, np.uint8) for value in (1, 2, 3, 4)]
    env = _wrap(Scripted(_images(1, 1, 2), frames), "frame_stack", frames=3)
    shown = [_first(env).ravel().tolist()] + [env.step(0)[0].ravel().tolist() for _ in range(3)]
    assert shown == [[1] * 6, [1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 3, 3], [2, 2, 3, 3, 4, 4]]
    assert _first(env).ravel().tolist() == [1] * 6


def test_stacking_keeps_bounds_and_does_not_alias() -> None:
    memory = np.zeros(2, np.float32)
    space = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
    env = _wrap(Scripted(space, [memory] * 3), "frame_stack", frames=2)
    assert env.observation_space.low.tolist() == [-1, -2, -1, -2]
    env.reset()
    memory[:] = 1
    assert env.step(0)[0].tolist() == [0, 0, 1, 1]


def test_leaves_of_dicts_are_changed_where_they_fit() -> None:
    space = spaces.Dict({"camera": _images(2, 2, 3), "speed": spaces.Box(-1, 1, (1,), np.float32)})
    observation = {"camera": np.full((2, 2, 3), 9, np.uint8), "speed": np.array([0.5], np.float32)}
    gray = _first(_wrap(Scripted(space, [observation]), "grayscale"))
    assert gray["camera"].shape == (2, 2, 1)
    assert gray["speed"].tolist() == [0.5]
    stacked = _first(_wrap(Scripted(space, [observation]), "frame_stack", frames=2))
    assert stacked["camera"].shape == (2, 2, 6)
    assert stacked["speed"].tolist() == [0.5, 0.5]


def test_one_hot_marks_each_value_from_its_start() -> None:
    env = _wrap(Scripted(spaces.Discrete(3, start=5), [np.int64(6)]), "one_hot")
    assert _first(env).tolist() == [0, 1, 0]
    multi = spaces.MultiDiscrete([2, 3], start=np.array([0, 1]))
    assert _first(_wrap(Scripted(multi, [np.array([1, 3])]), "one_hot")).tolist() == [0, 1, 0, 0, 1]
    both = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
    parts = _first(_wrap(Scripted(both, [(np.int64(0), np.int64(1))]), "one_hot"))
    assert [part.tolist() for part in parts] == [[1, 0], [0, 1]]


def test_repeats_sum_rewards_and_stop_at_the_end() -> None:
    env = _wrap(Scripted(spaces.Discrete(9), list(range(6)), [1, 2, 4, 8, 16]), "action_repeat", repeats=3)
    env.reset()
    assert env.step(0)[:3] == (3, 7, False)
    assert env.step(0)[:3] == (5, 24, True)


def test_a_time_limit_truncates() -> None:
    env = _wrap(Scripted(spaces.Discrete(9), list(range(9))), "time_limit", steps=2)
    for _ in range(2):
        env.reset()
        assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_rewards_are_clipped_or_reduced_to_their_sign() -> None:
    rewards = [-7.0, 0.3, 0.0, 9.0]

    def paid(**settings: Any) -> list[float]:
        env = _wrap(Scripted(spaces.Discrete(9), list(range(5)), rewards), "reward_clip", **settings)
        env.reset()
        return [float(env.step(0)[1]) for _ in rewards]

    assert paid(low=-2, high=0.1) == [-2, 0.1, 0, 0.1]
    assert paid(sign=True) == [-1, 1, 0, 1]
    with pytest.raises(ValidationError, match="low must be below high"):
        paid(low=1, high=0)


@pytest.mark.parametrize(
    ("kind", "env_id", "needs"),
    [
        ("grayscale", "CartPole-v1", "a colour image"),
        ("grayscale", "Reverie/Motion-v0", "a colour image"),
        ("resize", "CartPole-v1", "an image"),
        ("one_hot", "CartPole-v1", "a discrete observation"),
        ("frame_stack", "FrozenLake-v1", "Box"),
        ("render_pixels", "Reverie/Constant-v0", "frames"),
    ],
)
def test_a_wrapper_with_nothing_to_work_on_says_so(kind: str, env_id: str, needs: str) -> None:
    env = make_env(EnvConfig(id=env_id))
    with pytest.raises(ConfigError, match=needs):
        _wrap(env, kind)


def test_any_env_becomes_an_image_task() -> None:
    wrappers = ({"kind": "render_pixels", "height": 20, "width": 30}, "grayscale", {"kind": "frame_stack", "frames": 2})
    config = EnvConfig.model_validate({"id": "CartPole-v1", "wrappers": wrappers})
    (spec,) = make_specs(config).observations.values()
    assert (spec.kind, spec.shape) == ("image", (20, 30, 2))
    env = make_env(config)
    first = env.reset(seed=0)[0]
    for _ in range(6):
        last = env.step(1)[0]
    assert first.shape == (20, 30, 2)
    assert first[..., 0].tolist() == first[..., 1].tolist()
    assert first.tolist() != last.tolist()
    env.close()
