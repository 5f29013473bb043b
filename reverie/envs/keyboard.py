"""Which key does what when a person plays: maps for well-known envs, digits for the others, or maps of your own."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError
from reverie.core.types import Array

NO_KEY = "none"
ARROWS = {"w": "up", "a": "left", "s": "down", "d": "right"}
Actions = Mapping[str, Any]


@dataclass(frozen=True)
class KeyMap:
    """Key names, joined by + where several are held, and what they do; ``none`` is done without any.

    Several values for ``none`` are done in turn. Without it the game waits for a key. The parts of a continuous action
    add up over the keys that are held.
    """

    actions: Actions
    fps: float | None = None

    @property
    def waits(self) -> bool:
        return NO_KEY not in self.actions

    def lines(self) -> list[str]:
        """The map for people."""
        return [f"{keys:>12}  {action}" for keys, action in self.actions.items() if keys != NO_KEY]


DISCRETE: dict[str, KeyMap] = {
    "CartPole": KeyMap({"left": 0, "right": 1, NO_KEY: (0, 1)}, fps=15),
    "MountainCar": KeyMap({"left": 0, "right": 2, NO_KEY: 1}),
    "Acrobot": KeyMap({"left": 0, "right": 2, NO_KEY: 1}),
    "LunarLander": KeyMap({"left": 1, "up": 2, "right": 3, NO_KEY: 0}, fps=30),
    "CarRacing": KeyMap({"right": 1, "left": 2, "up": 3, "down": 4, NO_KEY: 0}),
    "FrozenLake": KeyMap({"left": 0, "down": 1, "right": 2, "up": 3}),
    "CliffWalking": KeyMap({"up": 0, "right": 1, "down": 2, "left": 3}),
    "Taxi": KeyMap({"down": 0, "up": 1, "right": 2, "left": 3, "p": 4, "d": 5}),
    "Blackjack": KeyMap({"s": 0, "h": 1}),
    "Reverie/Motion": KeyMap({"left": 0, "right": 1}),
}
CONTINUOUS: dict[str, KeyMap] = {
    "MountainCarContinuous": KeyMap({"left": (-1,), "right": (1,), NO_KEY: (0,)}),
    "Pendulum": KeyMap({"left": (2,), "right": (-2,), NO_KEY: (0,)}),
    "LunarLander": KeyMap({"left": (0, -1), "right": (0, 1), "up": (1, 0), NO_KEY: (0, 0)}, fps=30),
    "CarRacing": KeyMap(
        {"left": (-1, 0, 0), "right": (1, 0, 0), "up": (0, 1, 0), "down": (0, 0, 0.8), NO_KEY: (0, 0, 0)}
    ),
    "BipedalWalker": KeyMap(
        {
            "w": (1, 0, 0, 0), "s": (-1, 0, 0, 0), "e": (0, 1, 0, 0), "d": (0, -1, 0, 0), "u": (0, 0, 1, 0),
            "j": (0, 0, -1, 0), "i": (0, 0, 0, 1), "k": (0, 0, 0, -1), NO_KEY: (0, 0, 0, 0),
        }
    ),
}  # fmt: skip


class Keyboard:
    """Turns the keys that are down into an action of an env."""

    def __init__(self, keys: KeyMap, space: spaces.Space[Any]) -> None:
        self.keys = keys
        self._space = space
        self._turn = count()

    def action(self, pressed: Set[str]) -> Any:
        """The action for these keys; None if the game should wait."""
        if isinstance(self._space, spaces.Box):
            return self._sum(pressed, self._space)
        held = [keys for keys in self.keys.actions if keys != NO_KEY and set(keys.split("+")) <= pressed]
        if held:
            return self.keys.actions[max(held, key=lambda keys: keys.count("+"))]
        idle = self.keys.actions.get(NO_KEY)
        return idle[next(self._turn) % len(idle)] if isinstance(idle, tuple) else idle

    def _sum(self, pressed: Set[str], space: spaces.Box) -> Array | None:
        held = [np.asarray(part, np.float64) for key, part in self.keys.actions.items() if key in {*pressed, NO_KEY}]
        if not held:
            return None
        return np.clip(np.sum(held, axis=0), space.low, space.high).astype(space.dtype)


def choose_keys(env: gym.Env[Any, Any], env_id: str, given: str = "") -> KeyMap:
    """The keys that were given, those known for this env, its own (Atari's), or the digits."""
    space = env.action_space
    if given:
        return _parse_keys(given, space)
    known = CONTINUOUS if isinstance(space, spaces.Box) else DISCRETE
    for name in sorted(known, key=len, reverse=True):
        if env_id.startswith(name):
            return known[name]
    if hasattr(env.unwrapped, "get_keys_to_action"):
        return _own_keys(env.unwrapped.get_keys_to_action())
    if isinstance(space, spaces.Discrete) and space.n <= 10:
        return KeyMap({str(number): int(space.start) + number for number in range(int(space.n))})
    raise ConfigError(f"No keys are known for {env_id}, whose actions are {space}.", "Name some: --keys a=0,d=1,none=2")


def _own_keys(keys: Mapping[Any, Any]) -> KeyMap:
    """The map that an env brings along for ``gymnasium.utils.play``; letters for directions become arrows, too."""
    actions: dict[str, Any] = {NO_KEY: 0}
    for held, action in keys.items():
        held = (held,) if isinstance(held, (str, int)) else held
        letters = sorted(chr(key) if isinstance(key, int) else key for key in held)
        names = ["space" if letter == " " else letter for letter in letters]
        for spelling in (names, [ARROWS.get(name, name) for name in names]):
            actions["+".join(spelling) or NO_KEY] = int(action)
    return KeyMap(actions)


def _parse_keys(text: str, space: spaces.Space[Any]) -> KeyMap:
    """``a=0,d=1,none=2``; the parts of a continuous action are separated by slashes, ``up=0/1/0``."""
    actions: dict[str, Any] = {}
    for word in text.split(","):
        keys, _, action = (part.strip() for part in word.partition("="))
        try:
            value = np.array([float(part) for part in action.split("/")]) if "/" in action else int(action)
        except ValueError as error:
            raise ConfigError(f"--keys {text}: '{word}' is not key=action.", "Write --keys a=0,d=1") from error
        value = np.atleast_1d(value) if isinstance(space, spaces.Box) else value
        if not space.contains(value.astype(space.dtype) if isinstance(space, spaces.Box) else value):
            raise ConfigError(f"--keys {text}: {action} is not one of the actions {space}.", "Write --keys a=0,d=1")
        actions[keys] = tuple(value.tolist()) if isinstance(value, np.ndarray) else value
    return KeyMap(actions)
