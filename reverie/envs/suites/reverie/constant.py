"""``Reverie/Constant-v0``: a test of bootstrapping through truncation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class ConstantRewardEnv(gym.Env[Any, Any]):
    """Reward 1 at every step, one state, actions without effect. Only a time limit ends episodes.

    An agent that correctly bootstraps through truncation learns the value 1 / (1 - gamma).
    ``is_discrete`` makes the observation discrete, ``is_continuous`` the action continuous.
    """

    def __init__(self, is_discrete: bool = False, is_continuous: bool = False, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Discrete(1) if is_discrete else spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if is_continuous else spaces.Discrete(2)
        self._observation: Any = 0 if is_discrete else np.ones(1, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation, 1.0, False, False, {}
