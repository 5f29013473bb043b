"""A small image task: bring a bright block to the middle of the picture."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array


class CentringEnv(gym.Env[Array, np.int64]):
    """Sixteen steps with pictures of 16x16 pixels; the block starts anywhere and moves by two columns, left or right.

    Each step earns 1 in the middle and less the further away the block is. Moving by chance earns 6.6 on average, the
    best is 13.
    """

    steps = 16

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (16, 16, 1), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._place = 0, int(self.np_random.choice([0, 1, 2, 10, 11, 12]))
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._place = int(np.clip(self._place + (2 if action else -2), 0, 12))
        self._step += 1
        return self._show(), 1 - abs(self._place - 6) / 6, False, self._step >= self.steps, {}

    def _show(self) -> Array:
        picture = np.zeros((16, 16, 1), np.uint8)
        picture[:, self._place : self._place + 4] = 255
        return picture
