"""Shapes and kinds of observations and actions, from Gymnasium spaces.

Dict and Tuple observations become one entry per leaf, in flat dicts of arrays. Bounded Box actions are scaled: the
agent acts in [-1, 1], and :mod:`reverie.envs.episode` maps that to the bounds of the space and clips it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError
from reverie.core.types import ActionKind, Array, Row

ObservationKind = Literal["image", "vector", "discrete"]


@dataclass(frozen=True)
class ObservationSpec:
    """One leaf of the observation. ``image`` is uint8 (H, W, C); ``discrete`` holds indices below ``classes``."""

    shape: tuple[int, ...]
    dtype: str
    kind: ObservationKind
    classes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Width as a flat vector; discrete values count as one-hot."""
        return sum(self.classes) if self.kind == "discrete" else int(np.prod(self.shape))


@dataclass(frozen=True)
class ActionSpec:
    """The action as the agent outputs it. ``classes`` for discrete kinds; ``low`` and ``high`` for continuous.

    A ``mixed`` action (a Dict or Tuple space) is one float32 vector of its concatenated ``parts``, with classes as
    whole numbers.
    """

    kind: ActionKind
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    start: tuple[int, ...] = ()
    parts: tuple[ActionSpec, ...] = ()

    @property
    def size(self) -> int:
        """Network outputs for this action: one per class or continuous value."""
        if self.parts:
            return sum(part.size for part in self.parts)
        return sum(self.classes) if self.classes else self.width

    @property
    def width(self) -> int:
        """Number of values in an action."""
        return int(np.prod(self.shape))

    @cached_property
    def is_scaled(self) -> bool:
        """Whether all continuous values have finite bounds. Then [-1, 1] is mapped to them."""
        if self.parts:
            return all(part.is_scaled or bool(part.classes) for part in self.parts)
        return self.kind == "continuous" and bool(np.all(np.isfinite(self.low) & np.isfinite(self.high)))

    def zeros(self, *leading: int) -> Array:
        return np.zeros((*leading, *self.shape), dtype=self.dtype)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Uniform random actions for ``count`` envs (unbounded ones: standard normal)."""
        if self.parts:
            drawn = [part.sample(rng, count).reshape(count, -1) for part in self.parts]
            return np.concatenate(drawn, axis=1).astype(self.dtype)
        if self.kind == "continuous":
            draw = rng.uniform(-1, 1, (count, *self.shape)) if self.is_scaled else None
            noise = draw if draw is not None else rng.standard_normal((count, *self.shape))
            return noise.astype(self.dtype)
        if self.kind == "discrete":
            return rng.integers(0, self.classes[0], count, self.dtype)
        return rng.integers(0, np.array(self.classes).reshape(self.shape), (count, *self.shape), self.dtype)


@dataclass(frozen=True)
class Specs:
    """What an algorithm may know about its env."""

    observations: dict[str, ObservationSpec]
    action: ActionSpec
    max_episode_steps: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Specs:
        def tuples(values: dict[str, Any]) -> dict[str, Any]:
            return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}

        def action(values: dict[str, Any]) -> ActionSpec:
            parts = tuple(action(part) for part in values.get("parts", ()))
            return ActionSpec(**{**tuples(values), "parts": parts})

        observations = {key: ObservationSpec(**tuples(spec)) for key, spec in data["observations"].items()}
        return cls(observations, action(data["action"]), data["max_episode_steps"])


def read_specs(env: gym.Env[Any, Any], max_episode_steps: int | None = None) -> Specs:
    """The specs of a Gymnasium env."""
    leaves = _leaves("obs", env.observation_space)
    _check_distinct([key for key, _ in leaves])
    observations = {key: _observation(key, space) for key, space in leaves}
    return Specs(observations, _action(env.action_space), max_episode_steps)


def _check_distinct(keys: list[str]) -> None:
    """Refuse a Dict key with a slash that equals the path of a nested Dict's key: one would overwrite the other."""
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        inner = twice[0].removeprefix("obs/")
        raise ConfigError(
            f"Two parts of the observation are both called '{inner}': a Dict key that contains '/', and a nested Dict.",
            f"Rename one of them in observation_space, for example '{inner.replace('/', '_')}'.",
        )


def flatten_observation(space: gym.Space[Any], value: Any, prefix: str = "obs") -> Row:
    """A (nested) observation as a flat dict of arrays with the dtypes of the specs."""
    if isinstance(space, gym.spaces.Dict):
        items = [(f"{prefix}/{key}", sub, value[key]) for key, sub in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple):
        items = [(f"{prefix}/{i}", sub, value[i]) for i, sub in enumerate(space.spaces)]
    else:
        return {prefix: _leaf_value(space, value)}
    return {key: leaf for name, sub, part in items for key, leaf in flatten_observation(sub, part, name).items()}


def _leaves(prefix: str, space: gym.Space[Any]) -> list[tuple[str, gym.Space[Any]]]:
    if isinstance(space, gym.spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in _leaves(f"{prefix}/{key}", sub)]
    if isinstance(space, gym.spaces.Tuple):
        return [leaf for i, sub in enumerate(space.spaces) for leaf in _leaves(f"{prefix}/{i}", sub)]
    return [(prefix, space)]


def _leaf_value(space: gym.Space[Any], value: Any) -> Array:
    if isinstance(space, gym.spaces.Discrete):
        return np.asarray(value - space.start, dtype=np.int64)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.asarray(value - space.start, dtype=np.int64)
    if isinstance(space, gym.spaces.MultiBinary):
        return np.asarray(value, dtype=np.float32)
    array = np.asarray(value)
    if array.dtype != np.uint8:
        return array.astype(np.float32)
    return array[..., None] if array.ndim == 2 else array


def _observation(key: str, space: gym.Space[Any]) -> ObservationSpec:
    if isinstance(space, gym.spaces.Discrete):
        return ObservationSpec((), "int64", "discrete", (int(space.n),))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return ObservationSpec(space.shape, "int64", "discrete", tuple(int(n) for n in space.nvec.ravel()))
    if isinstance(space, gym.spaces.MultiBinary):
        return ObservationSpec(space.shape, "float32", "vector")
    if isinstance(space, gym.spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
            return ObservationSpec(shape, "uint8", "image")
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return ObservationSpec(space.shape, dtype, "vector")
    raise ConfigError(
        f"Observation '{key}' is a {type(space).__name__} space, which is not supported.",
        "Wrap the env so that it returns Box, Discrete, MultiDiscrete or MultiBinary, or Dict and Tuple of them.",
    )


def _action(space: gym.Space[Any]) -> ActionSpec:
    if isinstance(space, gym.spaces.Discrete):
        return ActionSpec("discrete", (), "int64", (int(space.n),), start=(int(space.start),))
    if isinstance(space, gym.spaces.MultiDiscrete):
        start = tuple(int(s) for s in space.start.ravel())
        return ActionSpec(
            "multi_discrete", space.shape, "int64", tuple(int(n) for n in space.nvec.ravel()), start=start
        )
    if isinstance(space, gym.spaces.MultiBinary):
        return ActionSpec("multi_binary", space.shape, "int64", (2,) * int(np.prod(space.shape)))
    if isinstance(space, gym.spaces.Box):
        low, high = (tuple(float(x) for x in side.ravel()) for side in (space.low, space.high))
        return ActionSpec("continuous", space.shape, "float32", low=low, high=high)
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = tuple(_action(leaf) for _, leaf in _leaves("", space))
        return ActionSpec("mixed", (sum(part.width for part in parts),), "float32", parts=parts)
    raise ConfigError(
        f"Actions of a {type(space).__name__} space are not supported.",
        "Wrap the env so that it takes Box, Discrete, MultiDiscrete or MultiBinary actions, or Dict and Tuple of them.",
    )
