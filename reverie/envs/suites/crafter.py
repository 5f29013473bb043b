"""Crafter: an open world with 22 achievements, seen from above (Hafner 2022). Needs the extra ``crafter``.

Crafter is not a Gymnasium env. :class:`CrafterEnv` makes it one: the seed of a reset decides the episode, and the
achievements are numbers in ``info``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, MutableSet
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array
from reverie.envs.suite import Registration, SuccessScore, Suite

_EPISODE_STEPS = 10_000
_RENDER_SIZE = 256


class CrafterEnv(gym.Env[Array, np.int64]):
    """Reward 1 for each new achievement in an episode, plus a tenth of every change of health.

    ``info["achievement_<name>"]`` counts how often an achievement was unlocked in this episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form
    has_reward = True

    def __init__(self, size: int = 64, render_mode: str | None = None) -> None:
        import crafter

        self.render_mode = render_mode
        self._achievements = sorted(crafter.constants.achievements)
        # No length: Gymnasium's time limit truncates the episode, Crafter's would terminate it.
        self._game = crafter.Env(size=(size, size), reward=self.has_reward, length=None, seed=0)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(len(crafter.constants.actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game._seed, self._game._episode = seed, 0
        return self._game.reset(), {f"achievement_{name}": 0 for name in self._achievements}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        image, reward, _, info = self._game.step(int(action))
        counts = {f"achievement_{name}": info["achievements"][name] for name in self._achievements}
        return image, float(reward), info["discount"] == 0, False, counts

    def render(self) -> Array:
        # Crafter's render(size) tests `size or ...`, which fails for arrays: replace the default size instead.
        usual, self._game._size = self._game._size, np.array([_RENDER_SIZE, _RENDER_SIZE])
        try:
            frame: Array = self._game.render()
        finally:
            self._game._size = usual
        return frame


class CrafterWithoutReward(CrafterEnv):
    """The same world, for agents that set their own goals."""

    has_reward = False


def order_crafter_objects() -> None:
    """Patch Crafter's worlds to keep their objects in order of insertion.

    Crafter stores the creatures of each area in a set and removes a random one. The order of the set depends on memory
    addresses, which no seed controls.
    """
    from crafter.engine import World

    reset = World.reset
    if getattr(reset, "is_ordered", False):
        return

    def ordered_reset(world: Any, seed: int | None = None) -> None:
        reset(world, seed)
        world._chunks = defaultdict(OrderedSet)

    ordered_reset.is_ordered = True  # type: ignore[attr-defined]
    World.reset = ordered_reset


class OrderedSet(MutableSet[Any]):
    """A set that is iterated in order of insertion."""

    def __init__(self) -> None:
        self._items: dict[Any, None] = {}

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)


def crafter_score(rates: Array) -> float:
    """Geometric mean of success rates in percent, each plus 1, minus 1 (Hafner 2022, section 3.2). 0 to 100."""
    return float(np.expm1(np.log1p(100 * rates).mean()))


SUITE = Suite(
    name="crafter",
    title="Crafter",
    prefixes=("Crafter/",),
    example="Crafter/Reward",
    id_forms=("Crafter/Reward", "Crafter/NoReward"),
    modules=("reverie.envs.suites.crafter",),
    envs={
        "Crafter/Reward": Registration("reverie.envs.suites.crafter:CrafterEnv", _EPISODE_STEPS),
        "Crafter/NoReward": Registration("reverie.envs.suites.crafter:CrafterWithoutReward", _EPISODE_STEPS),
    },
    success_score=SuccessScore("crafter_score", "achievement_", 22, crafter_score),
    extra="crafter",
    packages={"crafter": "crafter"},
    patch=order_crafter_objects,
)
