"""Wrappers that stack, encode or hide numbers of an observation."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.core.wording import count
from reverie.envs.wrappers.leaves import LeafWrapper, Space, leaves


class FrameStack(LeafWrapper):
    """Concatenates the last ``frames`` observations along the last axis. A reset repeats the first observation."""

    wanted = "an observation of numbers (Box)"

    class Config(ComponentConfig):
        kind: str = "frame_stack"
        frames: int = Field(4, ge=2)
        """Number of observations per stack."""

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
    """Turns discrete observations into one-hot vectors."""

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
    """Keeps some numbers of a vector. CartPole without velocities, for example, needs a recurrent network."""

    wanted = "a vector (Box of one dimension)"

    class Config(ComponentConfig):
        kind: str = "mask_observation"
        keep: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
        """Indices of the numbers to keep. In Dict and Tuple observations they apply to every vector."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._keep = np.array(config.keep)
        self._check_indices(env.observation_space)
        super().__init__(env)

    def _check_indices(self, space: Space) -> None:
        """Refuse indices that no vector has. If there is no vector, the base class raises."""
        longest = max((leaf.shape[0] for leaf in leaves(space) if _is_vector(leaf) and leaf.shape), default=0)
        outside = ", ".join(str(index) for index in self._keep if index >= longest)
        if longest and outside:
            size = f"{count(longest, 'number')}, 0-{longest - 1}"
            raise ConfigError(
                f"MaskObservation cannot keep {outside}: the observation has {size}.",
                "Correct keep of mask_observation in env.wrappers.",
            )

    def fits(self, space: Space) -> bool:
        return _is_vector(space) and space.shape is not None and space.shape[0] > self._keep.max()

    def change_space(self, space: Space) -> Space:
        assert isinstance(space, spaces.Box)
        return spaces.Box(space.low[self._keep], space.high[self._keep], dtype=space.dtype.type)

    def change(self, value: Array, space: Space, path: str) -> Array:
        kept: Array = np.asarray(value)[self._keep]
        return kept


def _is_vector(space: Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _as_frame(value: Array) -> Array:
    """Add a channel axis to images without one, so that frames are stacked as channels and not as columns."""
    return value[..., None] if value.dtype == np.uint8 and value.ndim == 2 else value


def _repeat_last(side: Array, times: int) -> Array:
    return np.concatenate([side] * times, axis=-1)


def _classes(space: Space) -> Array:
    return np.array([space.n]) if isinstance(space, spaces.Discrete) else np.ravel(space.nvec)  # type: ignore[attr-defined]
