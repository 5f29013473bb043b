"""An image task that a glance solves: say on which side the bright block is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array


class SidesEnv(gym.Env[Array, np.int64]):
    """Sixteen pictures of 16x16 pixels, each with the block left or right by chance. Guessing earns 8, the most is 16."""

    steps = 16

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (16, 16, 1), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._side)
        self._step += 1
        return self._show(), reward, False, self._step >= self.steps, {}

    def _show(self) -> Array:
        self._side = int(self.np_random.integers(2))
        picture = np.zeros((16, 16, 1), np.uint8)
        picture[4:12, 8 * self._side : 8 * self._side + 8] = 255
        return picture
