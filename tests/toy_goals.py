"""Bit flipping, the env of the hindsight paper (Andrychowicz et al. 2017): reach a random pattern of bits."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.types import Array


class BitFlipping(gym.Env[Any, Any]):
    """Each action flips one bit. The reward is -1 until the bits are those of the goal, which ends the episode."""

    def __init__(self, bits: int = 8, dense: bool = False) -> None:
        part = gym.spaces.Box(0, 1, (bits,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, part))
        self.action_space = gym.spaces.Discrete(bits)
        self.bits, self.dense = bits, dense
        self.state = self.goal = np.zeros(bits, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        self.steps = 0
        return self._observe(), {"success": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state = self.state.copy()
        self.state[action] = 1 - self.state[action]
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        is_reached = bool(self.compute_terminated(self.state, self.goal, {}))
        return self._observe(), reward, is_reached, self.steps >= self.bits, {"success": float(is_reached)}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Array:
        wrong = np.abs(achieved_goal - desired_goal).sum(-1)
        return -wrong if self.dense else np.where(wrong == 0, 0.0, -1.0)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Array:
        return np.asarray((achieved_goal == desired_goal).all(-1))

    def _observe(self) -> dict[str, Array]:
        return {"observation": self.state, "achieved_goal": self.state, "desired_goal": self.goal}
