"""Crafter: an open world seen from above, with 22 achievements (Hafner 2022). Needs the extra ``crafter``.

Crafter is not a Gymnasium env. Here it becomes one whose episodes follow from the seed of their reset alone (its
objects are put in order by :mod:`reverie.envs.repairs`), and whose achievements are numbers in ``info``.
"""

from __future__ import annotations

from typing import Any

import crafter
import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array

ACHIEVEMENTS = tuple(sorted(crafter.constants.achievements))
LONGEST_EPISODE = 10_000
_SHOWN = 256


class CrafterEnv(gym.Env[Array, np.int64]):
    """Reward 1 for each new achievement of an episode, and a tenth of every change of health.

    ``info`` has ``achievement_<name>``: how often it was done in this episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form
    has_reward = True

    def __init__(self, size: int = 64, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        # Ends are told by the flags below; the limit is Gymnasium's, so that it counts as a cut.
        self._game = crafter.Env(size=(size, size), reward=self.has_reward, length=None, seed=0)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(len(crafter.constants.actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game._seed, self._game._episode = seed, 0
        return self._game.reset(), {f"achievement_{name}": 0 for name in ACHIEVEMENTS}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        image, reward, _, info = self._game.step(int(action))
        counts = {f"achievement_{name}": info["achievements"][name] for name in ACHIEVEMENTS}
        return image, float(reward), info["discount"] == 0, False, counts

    def render(self) -> Array:
        # The game asks whether a size that it is given is true, which an array is not: its own is exchanged instead.
        usual, self._game._size = self._game._size, np.array([_SHOWN, _SHOWN])
        try:
            frame: Array = self._game.render()
        finally:
            self._game._size = usual
        return frame


class CrafterWithoutReward(CrafterEnv):
    """The same world for agents that find their own goals."""

    has_reward = False
