"""Wrappers that a config can name. Each is built as ``Wrapper(env, config)``, innermost first.

Those that change observations work leaf by leaf: inside Dict and Tuple observations every leaf of the right
kind is changed and the others pass through. A wrapper that finds nothing to work on is a mistake in the
config and says so. Scaling of observations and rewards is not here but in the run's normaliser, which
evaluation and exported policies share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from PIL import Image
from pydantic import Field, model_validator

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.core.wording import count
from reverie.envs.mistakes import check_reward

Space = spaces.Space[Any]


class LeafWrapper(gym.ObservationWrapper[Any, Any, Any]):
    """Base of the wrappers that change some leaves of an observation."""

    wanted = ""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._inner_space = env.observation_space
        if not any(self.fits(leaf) for leaf in _leaves(self._inner_space)):
            raise ConfigError(
                f"{type(self).__name__} needs {self.wanted}, but the env shows {self._inner_space}.",
                "Take the wrapper out of env.wrappers, or put one before it that gives what it needs.",
            )
        self.observation_space = self._map_space(self._inner_space)

    def fits(self, space: Space) -> bool:
        """Whether this leaf is one to change."""
        raise NotImplementedError

    def change_space(self, space: Space) -> Space:
        raise NotImplementedError

    def change(self, value: Any, space: Space, path: str) -> Any:
        """The new value of a leaf; ``path`` tells the leaves of one observation apart."""
        raise NotImplementedError

    def observation(self, observation: Any) -> Any:
        return self._map(observation, self._inner_space, "obs")

    def _map(self, value: Any, space: Space, path: str) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._map(value[key], sub, f"{path}/{key}") for key, sub in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._map(value[i], sub, f"{path}/{i}") for i, sub in enumerate(space.spaces))
        return self.change(value, space, path) if self.fits(space) else value

    def _map_space(self, space: Space) -> Space:
        if isinstance(space, spaces.Dict):
            return spaces.Dict({key: self._map_space(sub) for key, sub in space.spaces.items()})
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._map_space(sub) for sub in space.spaces])
        return self.change_space(space) if self.fits(space) else space


class Grayscale(LeafWrapper):
    """Colour images as brightness, (H, W, 3) to (H, W, 1)."""

    wanted = "a colour image (uint8, height x width x 3)"

    class Config(ComponentConfig):
        kind: str = "grayscale"

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return _is_image(space) and space.shape is not None and len(space.shape) == 3 and space.shape[2] == 3

    def change_space(self, space: Space) -> Space:
        assert space.shape is not None
        return spaces.Box(0, 255, (*space.shape[:2], 1), np.uint8)

    def change(self, value: Array, space: Space, path: str) -> Array:
        # Whole numbers, so that every machine rounds alike.
        brightness = value.astype(np.uint32) @ np.array([299, 587, 114], np.uint32)
        return ((brightness + 500) // 1000).astype(np.uint8)[..., None]


class Resize(LeafWrapper):
    """Images in another size; each new pixel is the mean of the area that it covers."""

    wanted = "an image (uint8, height x width x channels)"

    class Config(ComponentConfig):
        kind: str = "resize"
        height: int = Field(64, ge=1)
        """New height in pixels."""
        width: int = Field(64, ge=1)
        """New width in pixels."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._height, self._width = config.height, config.width
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return _is_image(space)

    def change_space(self, space: Space) -> Space:
        assert space.shape is not None
        return spaces.Box(0, 255, (self._height, self._width, *space.shape[2:]), np.uint8)

    def change(self, value: Array, space: Space, path: str) -> Array:
        return resize_image(value, self._height, self._width)


class FrameStack(LeafWrapper):
    """The last ``frames`` observations side by side in the last axis; the first is repeated after a reset."""

    wanted = "an observation of numbers (Box)"

    class Config(ComponentConfig):
        kind: str = "frame_stack"
        frames: int = Field(4, ge=2)
        """How many observations are shown at once."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._frames = config.frames
        self._history: dict[str, deque[Array]] = {}
        super().__init__(env)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._history.clear()
        return super().reset(**arguments)

    def fits(self, space: Space) -> bool:
        return isinstance(space, spaces.Box) and len(space.shape) > 0

    def change_space(self, space: Space) -> Space:
        assert isinstance(space, spaces.Box)
        low, high = (_repeat_last(side, self._frames) for side in (_as_frame(space.low), _as_frame(space.high)))
        return spaces.Box(low, high, dtype=space.dtype.type)

    def change(self, value: Array, space: Space, path: str) -> Array:
        frame = np.array(_as_frame(value))
        history = self._history.setdefault(path, deque([frame] * self._frames, maxlen=self._frames))
        history.append(frame)
        return np.concatenate(history, axis=-1)


class OneHot(LeafWrapper):
    """Discrete observations as vectors of zeros with a one for each value."""

    wanted = "a discrete observation"

    class Config(ComponentConfig):
        kind: str = "one_hot"

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))

    def change_space(self, space: Space) -> Space:
        return spaces.Box(0, 1, (int(_classes(space).sum()),), np.float32)

    def change(self, value: Any, space: Space, path: str) -> Array:
        assert isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
        classes = _classes(space)
        vector = np.zeros(int(classes.sum()), np.float32)
        vector[np.cumsum(classes) - classes + np.ravel(value - space.start)] = 1
        return vector


class MaskObservation(LeafWrapper):
    """Only some numbers of an observation, e.g. CartPole without its speeds: what is hidden has to be remembered."""

    wanted = "a list of numbers (Box of one dimension)"

    class Config(ComponentConfig):
        kind: str = "mask_observation"
        keep: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
        """Places of the numbers that stay, counted from 0; in Dict and Tuple observations of every list."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._keep = np.array(config.keep)
        self._check_places(env.observation_space)
        super().__init__(env)

    def _check_places(self, space: Space) -> None:
        """Say which places no list has; where there is no list at all, the base class says so."""
        longest = max((leaf.shape[0] for leaf in _leaves(space) if _is_list(leaf) and leaf.shape), default=0)
        outside = ", ".join(str(place) for place in self._keep if place >= longest)
        if longest and outside:
            raise ConfigError(
                f"MaskObservation cannot keep {outside}: the env shows {count(longest, 'number')}, 0-{longest - 1}.",
                "Correct keep of mask_observation in env.wrappers.",
            )

    def fits(self, space: Space) -> bool:
        return _is_list(space) and space.shape is not None and space.shape[0] > self._keep.max()

    def change_space(self, space: Space) -> Space:
        assert isinstance(space, spaces.Box)
        return spaces.Box(space.low[self._keep], space.high[self._keep], dtype=space.dtype.type)

    def change(self, value: Array, space: Space, path: str) -> Array:
        kept: Array = np.asarray(value)[self._keep]
        return kept


class RenderPixels(gym.ObservationWrapper[Any, Any, Any]):
    """Any env as an image task: the agent sees what a person would see, and nothing else."""

    needs_pixels = True

    class Config(ComponentConfig):
        kind: str = "render_pixels"
        height: int = Field(64, ge=1)
        """Height of the picture in pixels."""
        width: int = Field(64, ge=1)
        """Width of the picture in pixels."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise ConfigError(
                f"RenderPixels needs pictures, but {env.unwrapped} draws none.",
                "Take it out of env.wrappers, or give the env a render_mode 'rgb_array'.",
            )
        self._height, self._width = config.height, config.width
        self.observation_space = spaces.Box(0, 255, (config.height, config.width, 3), np.uint8)

    def observation(self, observation: Any) -> Array:
        return resize_image(np.asarray(self.env.render(), np.uint8), self._height, self._width)


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Each action is done several times; rewards are summed, and the end of the episode ends the repeats."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "action_repeat"
        repeats: int = Field(2, ge=1)
        """How often each action is done."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self.steps_per_action = config.repeats

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.steps_per_action):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += check_reward(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class TimeLimit(gym.wrappers.TimeLimit):
    """Cuts episodes after ``steps`` steps, counted where it stands: outside action_repeat, agent steps."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "time_limit"
        steps: int = Field(ge=1)
        """Steps until an episode is cut."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env, config.steps)


class RewardClip(gym.RewardWrapper[Any, Any]):
    """Rewards cut to an interval, or reduced to their sign."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "reward_clip"
        low: float = -1.0
        """Smallest reward that is let through."""
        high: float = 1.0
        """Largest reward that is let through."""
        sign: bool = False
        """Keep only the sign: -1, 0 or 1. Then low and high do not matter."""

        @model_validator(mode="after")
        def _ordered(self) -> RewardClip.Config:
            if self.low >= self.high:
                raise ValueError("low must be below high")
            return self

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self._clip: Callable[[Any], Any] = (
            np.sign if config.sign else lambda reward: min(max(reward, config.low), config.high)
        )

    def reward(self, reward: Any) -> float:
        return float(self._clip(check_reward(reward)))


def resize_image(image: Array, height: int, width: int) -> Array:
    """A uint8 image (H, W) or (H, W, C) in another size."""
    if image.shape[:2] == (height, width):
        return image
    if image.ndim == 2:
        return _resize_plane(image, height, width)
    if image.shape[2] == 3:
        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))
    planes = [_resize_plane(image[..., channel], height, width) for channel in range(image.shape[2])]
    return np.stack(planes, axis=-1)


def _resize_plane(plane: Array, height: int, width: int) -> Array:
    picture = Image.fromarray(np.ascontiguousarray(plane))
    return np.asarray(picture.resize((width, height), Image.Resampling.BOX))


def _leaves(space: Space) -> list[Space]:
    if isinstance(space, spaces.Dict):
        return [leaf for sub in space.spaces.values() for leaf in _leaves(sub)]
    if isinstance(space, spaces.Tuple):
        return [leaf for sub in space.spaces for leaf in _leaves(sub)]
    return [space]


def _is_list(space: Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _is_image(space: Space) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _as_frame(value: Array) -> Array:
    """Images without channels get one, so that stacking adds channels and not columns."""
    return value[..., None] if value.dtype == np.uint8 and value.ndim == 2 else value


def _repeat_last(side: Array, times: int) -> Array:
    return np.concatenate([side] * times, axis=-1)


def _classes(space: Space) -> Array:
    return np.array([space.n]) if isinstance(space, spaces.Discrete) else np.ravel(space.nvec)  # type: ignore[attr-defined]
