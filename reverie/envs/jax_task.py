"""One env written in JAX, as pure functions, and these functions compiled for one copy and for many.

Compiled programs belong to the task, and suites keep one task for equal arguments, so that all copies of an env in a
process share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from reverie.core.types import Array
from reverie.envs.jax_setup import start_jax

JaxState = Any
"""Any pytree of arrays. What is random about a step must come from a key in it."""


class Arrival(NamedTuple):
    """What an env shows after a reset or a step, as JAX arrays."""

    observation: Any
    """Of the form of the observation space."""
    reward: Any
    terminated: Any
    """Whether the episode ended in an absorbing state. Time limits are not the task's business."""
    info: dict[str, Any]
    """Numbers by name, for ``env.log_keys``. The same names in every arrival."""


Moment = tuple[JaxState, Arrival]


@dataclass(frozen=True, eq=False)
class JaxTask:
    """One env as pure functions. They must be traceable by ``jax.jit`` and ``jax.vmap``."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    reset: Callable[[Any], Moment]
    """From a key of ``jax.random`` to the first moment of an episode."""
    step: Callable[[JaxState, Any], Moment]
    """From a state and an action to the next moment. Never resets."""
    fps: float = 30.0
    source: Any = None
    """The env of the package, for rendering."""

    @cached_property
    def reset_one(self) -> Callable[[Array], Moment]:
        """Compiled ``reset``."""
        return start_jax().jit(lambda key: _plain(self.reset(key)))  # type: ignore[no-any-return]

    @cached_property
    def step_one(self) -> Callable[[JaxState, Array], Moment]:
        """Compiled ``step``."""
        return start_jax().jit(lambda state, action: _plain(self.step(state, action)))  # type: ignore[no-any-return]

    @cached_property
    def step_all(self) -> Callable[[JaxState, Array], Moment]:
        """``step`` of all copies: states and actions (N, ...)."""
        jax = start_jax()
        return jax.jit(jax.vmap(lambda state, action: _plain(self.step(state, action))))  # type: ignore[no-any-return]

    @cached_property
    def reset_some(self) -> Callable[[Moment, Array, Array], Moment]:
        """Moments (N, ...) in which the copies ``indices`` (K,) are reset with ``keys`` (K, 2). Index N: none."""
        jax = start_jax()

        def run(moments: Moment, indices: Array, keys: Array) -> Moment:
            fresh = jax.vmap(lambda key: _plain(self.reset(key)))(keys)
            return jax.tree.map(  # type: ignore[no-any-return]
                lambda all, own: all.at[indices].set(own, mode="drop"), moments, fresh
            )

        return jax.jit(run)  # type: ignore[no-any-return]

    def blank(self, num_envs: int) -> Moment:
        """Zeros of the shapes of ``num_envs`` moments."""
        jax = start_jax()
        shapes = jax.eval_shape(lambda key: _plain(self.reset(key)), key_of(0))
        return jax.tree.map(  # type: ignore[no-any-return]
            lambda leaf: jax.numpy.zeros((num_envs, *leaf.shape), leaf.dtype), shapes
        )


def key_of(seeds: Any) -> Array:
    """The keys of ``jax.random.PRNGKey`` for 31-bit seeds, shape (..., 2), made without JAX."""
    low = np.asarray(seeds, np.uint32)
    return np.stack([np.zeros_like(low), low], axis=-1)


def _plain(moment: Moment) -> Moment:
    """With the dtypes that rows need, and no weak types, with which JAX would compile everything a second time."""
    jax = start_jax()
    state, (observation, reward, terminated, info) = moment
    numbers = jax.numpy
    arrival = Arrival(observation, numbers.float32(reward), numbers.asarray(terminated, bool), info)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, numbers.asarray(leaf).dtype), (state, arrival))  # type: ignore[no-any-return]
