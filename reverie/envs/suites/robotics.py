"""Gymnasium-Robotics: goals for robot arms and hands, mazes and a kitchen. Needs the extra ``robotics``.

Fetch, Hand and maze envs have goal observations: a dict with ``observation``, ``achieved_goal`` and ``desired_goal``.
They define ``compute_reward``, so replay can relabel goals (``buffers.main.hindsight``).
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import gymnasium as gym

from reverie.envs.suite import Env, Suite


class Success(gym.Wrapper[Any, Any, Any, Any]):
    """``info["success"]`` as 0 or 1, which the envs name and report in three ways."""

    keeps_observations = True

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["success"] = _is_success(info)
        return observation, reward, terminated, truncated, info


def _is_success(info: dict[str, Any]) -> float:
    if "tasks_to_complete" in info:  # the kitchen lists what remains
        return float(not info["tasks_to_complete"])
    return float(info.get("is_success", info.get("success", 0)))


def _register(env_id: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()):  # each import prints a note about other versions of envs
        import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)


def _repair(env: Env) -> Env:
    return Success(env)


SUITE = Suite(
    name="robotics",
    title="Gymnasium-Robotics",
    example="FetchPush-v4",
    prefixes=("Fetch", "HandReach", "HandManipulate", "AdroitHand", "AntMaze_", "PointMaze_", "FrankaKitchen"),
    id_forms=("FetchReach-v4", "HandReach-v3", "PointMaze_UMaze-v3"),
    modules=("gymnasium_robotics",),
    register=_register,
    extra="robotics",
    packages={"gymnasium_robotics": "gymnasium-robotics", "mujoco": "mujoco"},
    renderer="gl",
    repair=_repair,
)
