"""Repairs of environments whose episodes do not follow from their seeds, so that runs repeat and resume exactly.

Each leaves everything else as it is: a repaired env shows the episode that a newly made one shows.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, MutableSet
from typing import Any

import gymnasium as gym

_WALKER = ("gymnasium.envs.box2d.bipedal_walker", "BipedalWalker")


def repair_env(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The env, inside the repair that it needs, if any. Crafter is mended wherever an env has brought it along."""
    if "crafter" in sys.modules:
        order_crafter_objects()
    names = [(base.__module__, base.__name__) for base in type(env.unwrapped).__mro__]
    return FreshWorld(env) if _WALKER in names else env


class FreshWorld(gym.Wrapper[Any, Any, Any, Any]):
    """BipedalWalker keeps its Box2D world over resets, and the solver remembers earlier bodies in it."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        walker: Any = self.unwrapped
        walker._destroy()  # before the world goes, to which its bodies belong
        walker.world = type(walker.world)()
        return self.env.reset(**arguments)


def order_crafter_objects() -> None:
    """Let Crafter's worlds keep their objects in the order of arrival; does nothing the second time.

    Crafter keeps the creatures of each area in a set and picks one at random to vanish. The order of a set
    of objects is that of their memory addresses, which no seed decides.
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
    """A set that is walked through in the order in which things were added."""

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
