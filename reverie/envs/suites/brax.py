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
from reverie.core.types import Array
from reverie.envs import gl
from reverie.envs.jax_env import JaxEnv, JaxEnvState
from reverie.envs.jax_setup import start_jax, untouched_import
from reverie.envs.jax_task import Arrival, JaxTask, Moment
from reverie.envs.suite import Suite

_PREFIX = "brax/"
_EPISODE_STEPS = 1000
_FRAME_SIZE = (240, 320)
_WARNINGS = ("Accessing `", "Brax System, pip", "JAXopt is no longer maintained")
"""Beginnings of warnings that every env of Brax gives: about its age, and that of a package it uses."""
NAMES = (
    "ant", "fast", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum",
    "inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d",
)  # fmt: skip


class BraxEnv(JaxEnv):
    """One env of Brax."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, name: str, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(_make_task(name, json.dumps(settings, sort_keys=True)), render_mode)
        self._renderer: Any = None

    def draw(self, state: Any) -> Array:
        import mujoco

        model, body = self.task.source.sys.mj_model, state.pipeline_state
        if self._renderer is None:
            self._renderer, self._data = mujoco.Renderer(model, *_FRAME_SIZE), mujoco.MjData(model)
        self._data.qpos, self._data.qvel = np.asarray(body.q), np.asarray(body.qd)
        mujoco.mj_forward(model, self._data)
        self._renderer.update_scene(self._data)
        frame: Array = self._renderer.render()
        return frame

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


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
