"""A small env in JAX for tests: it counts its steps, adds a random number to each, and ends when an action is high."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces

from reverie.core.types import Array
from reverie.envs.jax_env import JaxEnv
from reverie.envs.jax_setup import start_jax
from reverie.envs.jax_task import Arrival, JaxTask, Moment

HIGH = 0.9
"""Actions above it end the episode."""


class Counting(JaxEnv):
    """Observes the step, a random number of this step, and the last action."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, reward: float = 1.0, render_mode: str | None = None) -> None:
        super().__init__(make_task(reward), render_mode)

    def draw(self, state: Any) -> Array:
        return np.full((8, 8, 3), int(state["step"]), np.uint8)


@cache
def make_task(reward: float) -> JaxTask:
    jax = start_jax()
    numpy = jax.numpy

    def show(step: Any, key: Any, action: Any) -> Moment:
        key, own = jax.random.split(key)
        noise = jax.random.uniform(own)
        observation = {"numbers": numpy.stack([step * 1.0, noise]), "action": action}
        arrival = Arrival(observation, reward * step, action[0] > HIGH, {"double": 2.0 * step})
        return {"step": step, "key": key}, arrival

    return JaxTask(
        observation_space=spaces.Dict(
            {"numbers": spaces.Box(-np.inf, np.inf, (2,)), "action": spaces.Box(-np.inf, np.inf, (1,))}
        ),
        action_space=spaces.Box(0, 1, (1,)),
        reset=lambda key: show(numpy.int32(0), key, numpy.zeros(1)),
        step=lambda state, action: show(state["step"] + 1, state["key"], action),
    )
