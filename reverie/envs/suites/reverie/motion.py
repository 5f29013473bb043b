"""``Reverie/Motion-v0``: an image task that cannot be solved from one frame."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array


class MotionEnv(gym.Env[Array, np.int64]):
    """Choose the direction in which the blob last moved: 0 for left, 1 for right.

    The blob moves around a ring, so its position carries no information. Its direction flips at random, so an agent
    must compare the last two frames. Each correct answer gives reward 1. The first frame shows no motion, and its
    answer gives no reward. In the 32 steps of an episode the best return is 31, and guessing gives 15.5 on average.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form
    size, blob, stride, flip_probability = 64, 8, 4, 0.2

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (self.size, self.size, 1), np.uint8)
        self.action_space = spaces.Discrete(2)
        self._column, self._row, self._direction, self._answer = 0, 0, 1, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._column = int(self.np_random.integers(self.size))
        self._row = int(self.np_random.integers(self.size - self.blob))
        self._direction = int(self.np_random.choice([-1, 1]))
        self._answer = -1
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._answer)
        if self.np_random.random() < self.flip_probability:
            self._direction = -self._direction
        self._column = (self._column + self._direction * self.stride) % self.size
        self._answer = int(self._direction > 0)
        return self._draw(), reward, False, False, {}

    def render(self) -> Array:
        return np.repeat(self._draw(), 3, axis=2)

    def _draw(self) -> Array:
        image = np.zeros((self.size, self.size, 1), np.uint8)
        columns = (self._column + np.arange(self.blob)) % self.size
        image[self._row : self._row + self.blob, columns] = 255
        return image
