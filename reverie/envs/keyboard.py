"""Keys for `reverie play`: declared by the env's suite, digits for other envs, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.suite import NO_KEY, KeyMap
from reverie.envs.suites import SUITES

ARROWS = {"w": "up", "a": "left", "s": "down", "d": "right"}


class Keyboard:
    """Maps the pressed keys to an action."""

    def __init__(self, keys: KeyMap, space: spaces.Space[Any]) -> None:
        self.keys = keys
        self._space = space
        self._turn = count()

    def action(self, pressed: Set[str]) -> Any:
        """The action for these keys. None if the game waits for a key."""
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
        clipped = np.clip(np.sum(held, axis=0), space.low, space.high)
        return np.asarray(clipped, space.dtype)


def choose_keys(env: gym.Env[Any, Any], env_id: str, given: str = "") -> KeyMap:
    """The given keys, those of the env's suite, those of the env class (Atari), or digits, in this order."""
    space = env.action_space
    if given:
        return _parse_keys(given, space)
    known = known_keys(is_continuous=isinstance(space, spaces.Box))
    for name in sorted(known, key=len, reverse=True):
        if env_id.startswith(name):
            return known[name]
    if hasattr(env.unwrapped, "get_keys_to_action"):
        return _own_keys(env.unwrapped.get_keys_to_action())
    if isinstance(space, spaces.Discrete) and space.n <= 10:
        return KeyMap({str(number): int(space.start) + number for number in range(int(space.n))})
    message = f"{env_id} has no default keys. Its actions are {space}."
    raise ConfigError(message, "Choose keys: --keys a=0,d=1,none=2")


def known_keys(is_continuous: bool) -> dict[str, KeyMap]:
    """The keys that suites declare, by prefixes of env ids."""
    maps = [suite.continuous_keys if is_continuous else suite.keys for suite in SUITES]
    return {start: keys for declared in maps for start, keys in declared.items()}


def _own_keys(keys: Mapping[Any, Any]) -> KeyMap:
    """The keys that an env class declares for ``gymnasium.utils.play``. Arrow keys work as w, a, s and d."""
    actions: dict[str, Any] = {NO_KEY: 0}
    for held, action in keys.items():
        held = (held,) if isinstance(held, (str, int)) else held
        letters = sorted(chr(key) if isinstance(key, int) else key for key in held)
        names = ["space" if letter == " " else letter for letter in letters]
        for spelling in (names, [ARROWS.get(name, name) for name in names]):
            actions["+".join(spelling) or NO_KEY] = int(action)
    return KeyMap(actions)


def _parse_keys(text: str, space: spaces.Space[Any]) -> KeyMap:
    """Read ``a=0,d=1,none=2``. Slashes separate the numbers of a continuous action: ``up=0/1/0``."""
    actions: dict[str, Any] = {}
    for word in text.split(","):
        keys, _, action = (part.strip() for part in word.partition("="))
        try:
            numbers = [float(part) for part in action.split("/")] if "/" in action else [int(action)]
        except ValueError as error:
            raise ConfigError(f"--keys {text}: '{word}' is not key=action.", "Write --keys a=0,d=1") from error
        is_one = len(numbers) == 1 and not isinstance(space, spaces.Box)
        if not space.contains(numbers[0] if is_one else np.array(numbers, space.dtype)):
            raise ConfigError(f"--keys {text}: {action} is not an action of {space}.", "Write --keys a=0,d=1")
        actions[keys] = numbers[0] if is_one else tuple(numbers)
    return KeyMap(actions)
