"""Starts Atari games from a saved state: the same games as ale_py's own seeded resets, in a hundredth of the time.

ale_py seeds its generator only while it loads a game, which takes 70 ms: as long as 250 steps. The game itself starts
without chance; only sticky actions draw from the generator. So a reset loads the state after the start, with the
generator that the seed gives.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.types import Row

_WORDS = 624
_GENERATOR = re.compile(rb"(?:\d+ ){%d}\d+" % _WORDS)
"""A Mersenne Twister as text: its words, and how many of them are used up."""
_CERTAIN = 20
"""Actions after which the emulator remembers an action, however sticky: each misses it with a probability of 0.25."""
_SIZE_OF_STATE = 24
"""Where a saved state has the number of bytes of its longest part, which includes the generator."""


class AtariStart(gym.Wrapper[Any, Any, Any, Any]):
    """Resets with a seed by loading a state. Without a seed, or if states have an unknown form, ale_py resets."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._game = game
        self._last_action: Any = None
        """The action that a sticky one would repeat, which saved states lack. None after a reset: no button."""
        self._observation, self._info = env.reset(seed=0)
        self._state = game.ale.cloneState(include_rng=True).serialize()
        self._places = [found.span() for found in _GENERATOR.finditer(self._state)]
        self.is_fast = bool(self._places) and self._started(self._info["seeds"][1]) == self._state
        """Whether the state for this seed is the one that ale_py made from it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        from ale_py import ALEState

        self._last_action = None
        if seed is None or not self.is_fast:
            return self.env.reset(seed=seed, options=options)
        seeds = self._game.seed_game(seed)
        self._game.ale.reset_game()  # forgets the last action
        self._game.ale.restoreState(ALEState(self._started(seeds[1])))
        return self._observation.copy(), {**self._info, "seeds": seeds}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._last_action = action
        return self.env.step(action)

    def _started(self, seed: Any) -> bytes:
        """The state after the start of a game that was loaded with this seed."""
        start, end = self._places[-1]
        twister: Any = np.random.RandomState(int(seed)).get_state()  # the emulator seeds it in the same way
        text = f"{' '.join(map(str, twister[1].tolist()))} {_WORDS}".encode()
        state = bytearray(self._state[:start] + text + self._state[end:])
        for place in (_SIZE_OF_STATE, start - 4):
            (size,) = struct.unpack_from("<i", state, place)
            struct.pack_into("<i", state, place, size + len(text) - (end - start))
        return bytes(state)


class LastAction:
    """Saves the action that a sticky one would repeat. Loads it by taking it until the emulator has it for certain."""

    def save(self, env: Any) -> Row:
        is_reset = env._last_action is None
        return {} if is_reset else {"last_action": np.array(env._last_action)}

    def load(self, env: Any, arrays: Row) -> None:
        for _ in range(_CERTAIN if "last_action" in arrays else 0):
            env.step(arrays["last_action"][()])
