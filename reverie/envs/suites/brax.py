"""Brax: rigid bodies simulated in JAX (Freeman et al. 2021). Needs the extra ``brax``.

Ids are ``brax/ant``, ``brax/inverted_pendulum`` and so on. ``env.kwargs`` go to the env's class, such as ``backend``
(generalized, spring, positional or mjx). Brax's own wrappers are not used: time limits and resets are Reverie's.
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

_PREFIX = "brax/"
_EPISODE_STEPS = 1000
_WARNINGS = ("Accessing `", "Brax System, pip", "JAXopt is no longer maintained")
"""Beginnings of warnings that every env of Brax gives: about its age, and that of a package it uses."""
NAMES = (
    "ant", "fast", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum",
    "inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d",
)  # fmt: skip


class BraxEnv(MujocoJaxEnv):
    """One env of Brax."""

    def __init__(self, name: str, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(_make_task(name, json.dumps(settings, sort_keys=True)), render_mode)

    def model(self) -> Any:
        return self.task.source.sys.mj_model

    def pose(self, state: Any) -> tuple[Any, Any]:
        return state.pipeline_state.q, state.pipeline_state.qd


@cache
def _make_task(name: str, settings: str) -> JaxTask:
    """The task of an env with these settings (JSON). One per process, so that it is compiled once."""
    env = _load(name, json.loads(settings))
    with _without_warnings():  # Brax plays a step to find out
        width = env.observation_size
    return JaxTask(
        observation_space=spaces.Box(-np.inf, np.inf, (width,), np.float32),
        action_space=spaces.Box(-1, 1, (env.action_size,), np.float32),
        reset=lambda key: _trace(env.reset, key),
        step=lambda state, action: _trace(env.step, state, action),
        fps=float(1 / env.dt),
        source=env,
    )


def _trace(function: Any, *arguments: Any) -> Moment:
    with _without_warnings():
        state = function(*arguments)
    return state, Arrival(state.obs, state.reward, state.done > 0, dict(state.metrics))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for beginning in _WARNINGS:
            warnings.filterwarnings("ignore", beginning)
        yield


def _load(name: str, settings: dict[str, Any]) -> Any:
    start_jax()
    with untouched_import(), _without_warnings():
        from brax import envs

        if name not in envs._envs:
            raise ConfigError(f"Brax has no env '{name}'.", nearest(name, envs._envs))
        return envs.get_environment(name, **settings)


def _register(env_id: str) -> None:
    entry_point = "reverie.envs.suites.brax:BraxEnv"
    gym.register(env_id, entry_point, max_episode_steps=_EPISODE_STEPS, kwargs={"name": env_id.removeprefix(_PREFIX)})


def _choose_renderer() -> None:
    """MuJoCo reads the choice when it is imported, which Brax does."""
    gl.choose_backend()


SUITE = Suite(
    name="brax",
    title="Brax",
    prefixes=(_PREFIX,),
    example="brax/inverted_double_pendulum",
    id_forms=("brax/<env>",),
    env_ids=lambda: [f"{_PREFIX}{name}" for name in NAMES],
    modules=("reverie.envs.suites.brax",),
    register=_register,
    extra="brax",
    packages={"brax": "brax", "jax": "jax"},
    renderer="gl",
    prepare=_choose_renderer,
    accelerator=lambda env: JaxEnvState(),
)
