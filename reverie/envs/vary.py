"""Variations of an env for robustness studies: colours, masses and frictions that differ between episodes.

Each episode draws its factors from its own seed, so that a replay of the episode has the same ones and an exact resume
stays exact. Training and evaluation have separate ranges. Suites declare what of their simulators can be varied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.envs.config import Range


@dataclass(frozen=True)
class Variation:
    """How a suite varies one property of a simulator."""

    write: Callable[[Array], None]
    """Sets the property to its original value times the factors: (1,), or (3,) for colours."""
    after_reset: bool = False
    """Whether a reset builds what is varied anew, so that it must be set afterwards."""


class Vary(gym.Wrapper[Any, Any, Any, Any]):
    """Sets the factors at every reset with a seed. ``info`` has their means as ``vary_<name>``."""

    def __init__(self, env: gym.Env[Any, Any], ranges: Mapping[str, Range], known: Mapping[str, Variation]) -> None:
        super().__init__(env)
        unknown = [name for name in ranges if name not in known]
        if unknown:
            able = f"It can vary {', '.join(known)}." if known else "DeepMind Control, MuJoCo and CarRacing can vary."
            raise ConfigError(f"'{env.unwrapped}' cannot vary {' and '.join(unknown)}.", able)
        for name, (low, high) in ranges.items():
            if not 0 < low <= high:
                raise ConfigError(
                    f"env.vary.{name} has the range [{low:g}, {high:g}].",
                    "Give the lowest and highest factor, above 0.",
                )
        self._ranges, self._known = dict(ranges), known
        self._info: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        factors = {} if seed is None else self._draw(seed)
        self._write(factors, after_reset=False)
        observation, info = self.env.reset(seed=seed, options=options)
        self._write(factors, after_reset=True)
        return observation, {**info, **self._info}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, **self._info}

    def _draw(self, seed: int) -> dict[str, Array]:
        """The factors of an episode. Each property has its own stream, so that another one does not shift it."""
        factors = {
            name: make_generator(seed, "vary", name).uniform(low, high, 3 if name == "colour" else 1)
            for name, (low, high) in self._ranges.items()
        }
        self._info = {f"vary_{name}": float(found.mean()) for name, found in factors.items()}
        return factors

    def _write(self, factors: Mapping[str, Array], after_reset: bool) -> None:
        for name, found in factors.items():
            if self._known[name].after_reset == after_reset:
                self._known[name].write(found)
