"""Wrappers that change actions, episode lengths or rewards, but not observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from pydantic import Field, model_validator

from reverie.core.config import ComponentConfig
from reverie.envs.errors import check_reward


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action and sums the rewards. The end of the episode ends the repeats."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "action_repeat"
        repeats: int = Field(2, ge=1)
        """Env steps per action."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self.steps_per_action = config.repeats

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.steps_per_action):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += check_reward(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class TimeLimit(gym.wrappers.TimeLimit):
    """Truncates episodes after ``steps`` steps. If listed after action_repeat, it counts actions of the agent."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "time_limit"
        steps: int = Field(ge=1)
        """Steps until an episode is truncated."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env, config.steps)


class RewardClip(gym.RewardWrapper[Any, Any]):
    """Clips rewards to an interval, or reduces them to their sign."""

    keeps_observations = True

    class Config(ComponentConfig):
        kind: str = "reward_clip"
        low: float = -1.0
        """Smaller rewards become this."""
        high: float = 1.0
        """Larger rewards become this."""
        sign: bool = False
        """Reduce rewards to their sign: -1, 0 or 1. Then low and high have no effect."""

        @model_validator(mode="after")
        def _ordered(self) -> RewardClip.Config:
            if self.low >= self.high:
                raise ValueError("low must be below high")
            return self

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self._clip: Callable[[Any], Any] = (
            np.sign if config.sign else lambda reward: min(max(reward, config.low), config.high)
        )

    def reward(self, reward: Any) -> float:
        return float(self._clip(check_reward(reward)))
