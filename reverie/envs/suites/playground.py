"""MuJoCo Playground: tasks in MuJoCo's JAX port MJX (Zakka et al. 2025). Needs the extra ``playground``.

Ids are ``playground/CartpoleBalance`` and so on. ``env.kwargs`` replace entries of a task's own config.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.envs import gl
from reverie.envs.jax_env import JaxEnvState
from reverie.envs.jax_mujoco import MujocoJaxEnv
from reverie.envs.jax_setup import start_jax, untouched_import
from reverie.envs.jax_task import Arrival, JaxTask, Moment
from reverie.envs.suite import Suite

_PREFIX = "playground/"
_IMPLEMENTATION = {"impl": "jax"}
"""The other implementation of MJX, Warp, needs a GPU of NVIDIA."""


class PlaygroundEnv(MujocoJaxEnv):
    """One task."""

    def __init__(self, name: str, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(_make_task(name, json.dumps(settings, sort_keys=True)), render_mode)

    def model(self) -> Any:
        return self.task.source.mj_model

    def pose(self, state: Any) -> tuple[Any, Any]:
        return state.data.qpos, state.data.qvel


@cache
def _make_task(name: str, settings: str) -> JaxTask:
    """The task with these settings (JSON). One per process, so that it is compiled once."""
    with _without_warnings():
        env = _registry().load(name, config_overrides={**_IMPLEMENTATION, **json.loads(settings)})
        size = env.observation_size
    return JaxTask(
        observation_space=_space(size),
        action_space=spaces.Box(-1, 1, (env.action_size,), np.float32),
        reset=lambda key: _trace(env.reset, key),
        step=lambda state, action: _trace(env.step, state, action),
        fps=float(1 / env.dt),
        source=env,
    )


def _space(size: Any) -> gym.Space[Any]:
    """A number of values, a shape, or a dict of them."""
    if isinstance(size, dict):
        return spaces.Dict({key: _space(part) for key, part in size.items()})
    return spaces.Box(-np.inf, np.inf, size if isinstance(size, tuple) else (size,), np.float32)


def _trace(function: Any, *arguments: Any) -> Moment:
    with _without_warnings():
        state = function(*arguments)
    return state, Arrival(state.obs, state.reward, state.done > 0, dict(state.metrics))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _registry() -> Any:
    gl.choose_backend()  # MuJoCo reads the choice when it is imported
    start_jax()
    with untouched_import(), _without_warnings():
        from mujoco_playground import registry
    return registry


def _register(env_id: str) -> None:
    registry, name = _registry(), env_id.removeprefix(_PREFIX)
    if name not in registry.ALL_ENVS:
        raise ConfigError(f"MuJoCo Playground has no task '{name}'.", nearest(name, registry.ALL_ENVS))
    gym.register(
        env_id, "reverie.envs.suites.playground:PlaygroundEnv", kwargs={"name": name},
        max_episode_steps=int(registry.get_default_config(name).episode_length),
    )  # fmt: skip


SUITE = Suite(
    name="playground",
    title="MuJoCo Playground",
    prefixes=(_PREFIX,),
    example="playground/CartpoleBalance",
    id_forms=("playground/<task>",),
    env_ids=lambda: [f"{_PREFIX}{name}" for name in _registry().ALL_ENVS],
    modules=("reverie.envs.suites.playground",),
    register=_register,
    extra="playground",
    packages={"mujoco_playground": "playground", "jax": "jax"},
    renderer="gl",
    accelerator=lambda env: JaxEnvState(),
)
