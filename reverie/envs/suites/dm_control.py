"""The DeepMind Control Suite (Tassa et al. 2018), from proprioception, pixels or both. Needs the extra ``dmc``.

Ids are ``dmc/<domain>_<task>``, such as ``dmc/cartpole_swingup``. In dm_control one generator draws all episodes of an
env. Here every reset has its own seed, so that a single episode can be replayed.
"""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array, Row
from reverie.envs import gl
from reverie.envs.batch_task import BatchTask, only_arguments
from reverie.envs.config import EnvConfig
from reverie.envs.suite import Suite
from reverie.envs.suites.mujoco import read_state, vary_model, write_state
from reverie.envs.vary import Variation

_PREFIX = "dmc/"
_EPISODE_STEPS = 1000
_CAMERAS = {"quadruped": 2}
"""Domains whose default camera is not 0: these show more."""
_RENDER_SIZE = 256
Observation = dict[str, Array]


class DMControlEnv(gym.Env[Observation, Array]):
    """One task. Observations are a dict of vectors (``proprio``) and an image under ``image``, or one of the two."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self, task: str, proprio: bool = True, image: bool = False, size: int = 64, camera: int = -1,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        if not (proprio or image):
            raise ConfigError(
                "With proprio=false and image=false the env has no observation.", "Set env.kwargs.image=true"
            )
        _choose_gl_backend(is_needed=image or render_mode is not None)
        self.render_mode = render_mode
        domain, name = _split(task)
        from dm_control import suite

        self.suite_env = suite.load(domain, name, task_kwargs={"random": 0})
        self._proprio, self._image, self._size = proprio, image, size
        self._camera = _CAMERAS.get(domain, 0) if camera < 0 else camera
        action = self.suite_env.action_spec()
        self.action_space = spaces.Box(action.minimum.astype(np.float32), action.maximum.astype(np.float32))
        self.observation_space = self._observation_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.suite_env.task._random = np.random.RandomState(seed)
        return self._observe(self.suite_env.reset()), {}

    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        step = self.suite_env.step(action)
        is_terminal = step.last() and not step.discount
        return self._observe(step), float(step.reward or 0), is_terminal, step.last() and not is_terminal, {}

    def render(self) -> Array:
        return self._draw(_RENDER_SIZE)

    def _observe(self, step: Any) -> Observation:
        numbers = step.observation.items() if self._proprio else ()
        vectors = {key: np.atleast_1d(value).astype(np.float32).ravel() for key, value in numbers}
        return {**vectors, "image": self._draw(self._size)} if self._image else vectors

    def _draw(self, size: int) -> Array:
        frame: Array = self.suite_env.physics.render(size, size, camera_id=self._camera)
        return frame

    def _observation_space(self) -> spaces.Space[Any]:
        numbers = self.suite_env.observation_spec().items() if self._proprio else ()
        leaves: dict[str, spaces.Space[Any]] = {
            key: spaces.Box(-np.inf, np.inf, (int(np.prod(spec.shape)),), np.float32) for key, spec in numbers
        }
        if self._image:
            leaves["image"] = spaces.Box(0, 255, (self._size, self._size, 3), np.uint8)
        return spaces.Dict(leaves)


def _choose_gl_backend(is_needed: bool) -> None:
    """Called before dm_control is imported. Without frames it works without a GL backend."""
    if is_needed:
        gl.require_backend()
    elif gl.choose_backend() is None:
        os.environ[gl.VARIABLE] = gl.DISABLED


def _split(task: str) -> tuple[str, str]:
    """Domain and task of ``cartpole_swingup``. Some domains and some tasks contain underscores themselves."""
    from dm_control import suite

    known = {f"{domain}_{name}": (domain, name) for domain, name in suite.ALL_TASKS}
    if task not in known:
        raise ConfigError(f"The DeepMind Control Suite has no task '{task}'.", nearest(task, known))
    return known[task]


class DMControlState:
    """MuJoCo's integration state with all derived values recomputed, and the suite's own step counter."""

    def save(self, env: Any) -> Row:
        physics = env.suite_env.physics
        numbers = read_state(physics.model.ptr, physics.data.ptr)
        return {"mujoco": numbers, "steps": np.array(env.suite_env._step_count)}

    def load(self, env: Any, arrays: Row) -> None:
        physics = env.suite_env.physics
        write_state(physics.model.ptr, physics.data.ptr, arrays["mujoco"])
        physics.forward()
        env.suite_env._step_count = int(arrays["steps"])


def _variations(env: Any) -> dict[str, Variation]:
    physics = env.suite_env.physics
    return vary_model(physics.model.ptr, physics.data.ptr)


def _register(env_id: str) -> None:
    arguments = {"task": env_id.removeprefix(_PREFIX)}
    entry_point = "reverie.envs.suites.dm_control:DMControlEnv"
    gym.register(env_id, entry_point, max_episode_steps=_EPISODE_STEPS, kwargs=arguments)


def _env_ids() -> list[str]:
    _choose_gl_backend(is_needed=False)
    from dm_control import suite

    return [f"{_PREFIX}{domain}_{task}" for domain, task in suite.ALL_TASKS]


def _envpool(config: EnvConfig) -> BatchTask | None:
    """EnvPool writes ``point_mass_easy`` as ``PointMassEasy``. Its LQR tasks diverge, to rewards of -1e18."""
    task = config.id.removeprefix(_PREFIX).replace("_", "").lower()
    known = {name.removesuffix("-v1").lower(): name for name in _envpool_names()}
    return BatchTask(known[task], only_arguments(config), config.wrappers) if task in known else None


def _envpool_names() -> list[str]:
    from reverie.envs.envpool_vector import import_envpool

    tasks = import_envpool().registration.registry.specs.items()
    return [name for name, (module, *_) in tasks if module == "envpool.mujoco.dmc" and "Lqr" not in name]


SUITE = Suite(
    name="dm_control",
    title="the DeepMind Control Suite",
    prefixes=(_PREFIX,),
    example="dmc/cheetah_run",
    id_forms=("dmc/<domain>_<task>",),
    env_ids=_env_ids,
    modules=("reverie.envs.suites.dm_control",),
    register=_register,
    extra="dmc",
    packages={"dm_control": "dm-control", "mujoco": "mujoco"},
    renderer="gl",
    variations=_variations,
    accelerator=lambda env: DMControlState(),
    envpool=_envpool,
)
