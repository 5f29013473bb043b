"""Craftax: Crafter and a larger game like NetHack, in JAX (Matthews et al. 2024). Needs the extra ``craftax``.

Ids are ``craftax/`` and the package's names. Its time limit is taken out of the env, so that reaching it truncates.
"""

from __future__ import annotations

import importlib
from functools import cache, cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs.jax_env import JaxEnv, JaxEnvState
from reverie.envs.jax_setup import start_jax, untouched_import
from reverie.envs.jax_task import Arrival, JaxTask, Moment
from reverie.envs.suite import Suite

_PREFIX = "craftax/"
_LIMITS = {
    "Craftax-Classic-Symbolic-v1": 10_000,
    "Craftax-Classic-Pixels-v1": 10_000,
    "Craftax-Symbolic-v1": 100_000,
    "Craftax-Pixels-v1": 100_000,
}
"""The package's time limits, by its names."""
_NO_LIMIT = 2**30


class CraftaxEnv(JaxEnv):
    """One game."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        super().__init__(_make_task(name), render_mode)
        self._game = _game_of(name)

    def draw(self, state: Any) -> Array:
        return np.asarray(self._draw(state[1])).astype(np.uint8)

    @cached_property
    def _draw(self) -> Any:
        constants = importlib.import_module(f"craftax.{self._game}.constants")
        renderer = importlib.import_module(f"craftax.{self._game}.renderer")
        return start_jax().jit(renderer.make_craftax_pixel_renderer(constants.BLOCK_PIXEL_SIZE_IMG))


def _game_of(name: str) -> str:
    """The package's module of a game."""
    return "craftax_classic" if "Classic" in name else "craftax"


@cache
def _make_task(name: str) -> JaxTask:
    """The task of a game. One per process, so that it is compiled once."""
    jax = start_jax()
    with untouched_import():
        from craftax.craftax_env import make_craftax_env_from_name

        names = importlib.import_module(f"craftax.{_game_of(name)}.constants").Achievement
    env = make_craftax_env_from_name(name, auto_reset=False)
    params = env.default_params.replace(max_timesteps=_NO_LIMIT)
    is_image = "Pixels" in name
    shape = env.observation_space(params).shape

    def show(key: Any, state: Any, observation: Any, reward: Any, is_over: Any) -> Moment:
        if is_image:
            observation = jax.numpy.uint8(jax.numpy.round(observation * 255))
        info = {f"achievement_{one.name.lower()}": jax.numpy.float32(state.achievements[one.value]) for one in names}
        return (key, state), Arrival(observation, reward, is_over, info)

    def reset(key: Any) -> Moment:
        key, own = jax.random.split(key)
        observation, state = env.reset_env(own, params)
        return show(key, state, observation, 0.0, False)

    def step(keyed: Any, action: Any) -> Moment:
        key, own = jax.random.split(keyed[0])
        observation, state, reward, is_over, _ = env.step_env(own, keyed[1], action, params)
        return show(key, state, observation, reward, is_over)

    box = spaces.Box(0, 255, shape, np.uint8) if is_image else spaces.Box(-np.inf, np.inf, shape, np.float32)
    return JaxTask(box, spaces.Discrete(env.num_actions), reset, step, fps=10)


def _register(env_id: str) -> None:
    name = env_id.removeprefix(_PREFIX)
    if name not in _LIMITS:
        raise ConfigError(f"Craftax has no env '{name}'.", nearest(name, _LIMITS))
    gym.register(
        env_id, "reverie.envs.suites.craftax:CraftaxEnv", max_episode_steps=_LIMITS[name], kwargs={"name": name}
    )


SUITE = Suite(
    name="craftax",
    title="Craftax",
    prefixes=(_PREFIX,),
    example="craftax/Craftax-Classic-Symbolic-v1",
    id_forms=tuple(f"{_PREFIX}{name}" for name in ("Craftax-Classic-Symbolic-v1", "Craftax-Pixels-v1")),
    env_ids=lambda: [f"{_PREFIX}{name}" for name in _LIMITS],
    modules=("reverie.envs.suites.craftax",),
    register=_register,
    extra="craftax",
    # It asks for pygame, which cannot be beside pygame-ce, and runs with either.
    without_dependencies=("craftax==1.6.1",),
    packages={"craftax": "craftax", "jax": "jax", "flax": "flax"},
    accelerator=lambda env: JaxEnvState(),
)
