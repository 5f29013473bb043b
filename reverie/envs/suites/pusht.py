"""PushT: push a T-shaped block onto its outline (Chi et al. 2023, Florence et al. 2021). Needs the extra ``pusht``.

The id is ``gym_pusht/PushT-v0``. Its package needs ``pygame``, which overwrites ``pygame-ce``, so it belongs into an
environment of its own. ``info["success"]`` is 1 if 95 % of the outline are covered, ``info["coverage"]`` how much is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from reverie.envs.config import EnvConfig
from reverie.envs.suite import Env, Suite


class Task(gym.Wrapper[Any, Any, Any, Any]):
    """Logs ``success`` and ``coverage`` as numbers, and forgets the last action, which frames show."""

    keeps_observations = True

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        game: Any = self.env.unwrapped
        game._last_action = None
        with warnings.catch_warnings():  # pymunk announces its next version at every reset
            warnings.simplefilter("ignore", DeprecationWarning)
            observation, info = self.env.reset(**arguments)
        return observation, {**info, "success": 0.0, "coverage": 0.0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        success = float(info["is_success"])
        return observation, float(reward), bool(terminated), truncated, {**info, "success": success}


def _repair(env: Env) -> Env:
    return Task(env)


def _with_type(kind: str) -> Callable[[EnvConfig], EnvConfig]:
    """A form of observation that the env itself offers."""

    def apply(config: EnvConfig) -> EnvConfig:
        return config.model_copy(update={"kwargs": {**config.kwargs, "obs_type": kind}})

    return apply


def _register(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gym_pusht.envs  # noqa: F401 - registers the id, and pygame warns about its own parts


SUITE = Suite(
    name="pusht",
    title="PushT",
    prefixes=("gym_pusht/",),
    example="gym_pusht/PushT-v0",
    modules=("gym_pusht",),
    register=_register,
    extra="pusht",
    packages={"gym_pusht": "gym-pusht", "pymunk": "pymunk"},
    repair=_repair,
    observations={
        "state": _with_type("state"),
        "keypoints": _with_type("environment_state_agent_pos"),
        "pixels": _with_type("pixels"),
        "pixels_state": _with_type("pixels_agent_pos"),
    },
)
