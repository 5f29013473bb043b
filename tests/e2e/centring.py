"""A small image task: move a bright block to the middle of the image."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array


class CentringEnv(gym.Env[Array, np.int64]):
    """Sixteen steps with images of 16x16 pixels. The block starts near an edge and moves two columns, left or right.

    The reward is 1 in the middle and falls with the distance. Random actions earn 6.6 on average, the best ones 13.
    """

    steps = 16

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (16, 16, 1), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._column = 0, int(self.np_random.choice([0, 1, 2, 10, 11, 12]))
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._column = int(np.clip(self._column + (2 if action else -2), 0, 12))
        self._step += 1
        return self._show(), 1 - abs(self._column - 6) / 6, False, self._step >= self.steps, {}

    def _show(self) -> Array:
        image = np.zeros((16, 16, 1), np.uint8)
        image[:, self._column : self._column + 4] = 255
        return image
