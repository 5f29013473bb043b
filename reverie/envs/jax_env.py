"""One copy of an env written in JAX, as a Gymnasium env: for specs, frames, wrappers, and replayed episodes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.types import Array, Row
from reverie.envs.jax_setup import start_jax
from reverie.envs.jax_task import JaxTask, key_of

_MOST_SEEDS = 2**31


class JaxEnv(gym.Env[Any, Any]):
    """Base class of envs written in JAX. All their copies step at once with ``env.vector: jax``.

    Your own env passes its task to ``super().__init__``, and defines ``draw`` if it can be rendered.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, task: JaxTask, render_mode: str | None = None) -> None:
        self.task = task
        self.render_mode = render_mode
        self.observation_space, self.action_space = task.observation_space, task.action_space
        self.metadata = {**type(self).metadata, "render_fps": task.fps}
        self.state: Any = None
        """The pytree of the current state. None before the first reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        number = int(self.np_random.integers(_MOST_SEEDS)) if seed is None else seed
        self.state, arrival = self.task.reset_one(key_of(number))
        arrival = to_numpy(arrival)
        return arrival.observation, arrival.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state, arrival = self.task.step_one(self.state, np.asarray(action))
        arrival = to_numpy(arrival)
        return arrival.observation, float(arrival.reward), bool(arrival.terminated), False, arrival.info

    def render(self) -> Any:
        return self.draw(self.state)

    def draw(self, state: Any) -> Array:
        """A frame (H, W, 3) of a state."""
        raise NotImplementedError(f"{type(self).__name__} does not render.")


class JaxEnvState:
    """The arrays of the current state."""

    def save(self, env: Any) -> Row:
        return to_arrays(env.state)

    def load(self, env: Any, arrays: Row) -> None:
        env.state = from_arrays(env.state, arrays)


def to_numpy(tree: Any) -> Any:
    """The same pytree with numpy arrays."""
    return start_jax().tree.map(np.asarray, tree)


def to_arrays(tree: Any) -> Row:
    """Copies of the leaves of a pytree, by their numbers."""
    leaves = start_jax().tree.leaves(tree)
    return {str(number): np.array(leaf) for number, leaf in enumerate(leaves)}


def from_arrays(like: Any, arrays: Row) -> Any:
    """A pytree from the copies of its leaves. ValueError if they are not of the form of ``like``."""
    jax = start_jax()
    leaves, form = jax.tree.flatten(like)
    found = [arrays.get(str(number)) for number in range(len(leaves))]
    for old, new in zip(leaves, found, strict=True):
        if new is None or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError("the saved arrays are those of another env or of another version of its package")
    return jax.tree.unflatten(form, [jax.numpy.array(leaf) for leaf in found])
