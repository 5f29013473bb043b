"""Meta-World (Yu et al. 2020): 50 tasks for a robot arm. Needs the extra ``metaworld``.

Ids are ``metaworld/<task>``, such as ``metaworld/reach-v3``. Every episode draws its own goal and start, and the goal
is part of the observation. Meta-World itself draws 50 of them once, which are loaded with pickle.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs.suite import Suite

_PREFIX = "metaworld/"
_EPISODE_STEPS = 500
_CAMERA = "corner2"


class MetaWorldEnv(gym.Env[Array, Array]):
    """One task. ``info["success"]`` is 1 from the first success of an episode on."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, task: str, camera: str = _CAMERA, size: int = 256, render_mode: str | None = None) -> None:
        tasks = _tasks()
        if task not in tasks:
            raise ConfigError(f"Meta-World has no task '{task}'.", nearest(task, tasks))
        self.render_mode = render_mode
        arm = tasks[task](render_mode=render_mode, camera_name=camera, width=size, height=size)
        arm._partially_observable = False
        arm._freeze_rand_vec, arm.seeded_rand_vec, arm._set_task_called = False, True, True
        arm.__dict__.pop("sawyer_observation_space", None)  # cached for hidden goals
        arm.max_path_length = np.inf  # episodes end by Gymnasium's time limit
        self.arm = arm
        self._is_solved = False
        # Joint and object positions leave the declared bounds slightly.
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, arm.sawyer_observation_space.shape, np.float32)
        self.action_space = arm.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.arm.seed(seed)
        self._is_solved = False
        observation, _ = self.arm.reset()
        return observation.astype(np.float32), {"success": 0.0}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.arm.step(action)
        self._is_solved |= bool(info["success"])
        return observation.astype(np.float32), float(reward), terminated, truncated, self._info(info)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "success": float(self._is_solved)}

    def render(self) -> Array:
        frame: Array = self.arm.render()
        return frame[::-1] if self.arm.camera_name in _INVERTED else frame

    def close(self) -> None:
        self.arm.close()


_INVERTED = ("corner", "corner2", "corner3", "corner4")
"""Cameras that Meta-World mounts upside down."""


def _tasks() -> dict[str, Any]:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    return dict(ALL_V3_ENVIRONMENTS)


def _register(env_id: str) -> None:
    arguments = {"task": env_id.removeprefix(_PREFIX)}
    entry_point = "reverie.envs.suites.metaworld:MetaWorldEnv"
    gym.register(env_id, entry_point, max_episode_steps=_EPISODE_STEPS, kwargs=arguments)


def _env_ids() -> list[str]:
    return [_PREFIX + task for task in _tasks()]


SUITE = Suite(
    name="metaworld",
    title="Meta-World",
    prefixes=(_PREFIX,),
    example="metaworld/reach-v3",
    id_forms=("metaworld/<task>",),
    env_ids=_env_ids,
    modules=("reverie.envs.suites.metaworld",),
    register=_register,
    extra="metaworld",
    without_dependencies=("metaworld==3.1.1",),  # it asks for an older MuJoCo than it needs
    packages={"metaworld": "metaworld", "mujoco": "mujoco"},
    renderer="gl",
)
