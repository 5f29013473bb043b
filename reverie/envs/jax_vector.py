"""Envs written in JAX, all copies of which are stepped by one compiled program.

Episodes have the seeds of the other vectors, so they start in the same states. The program of many copies may round
otherwise than that of one, so the rows that follow are equal up to rounding, not bit for bit.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import derive_seed
from reverie.core.specs import flatten_observation, read_specs
from reverie.core.types import Array, Row, State
from reverie.core.wording import count
from reverie.envs.config import EnvConfig
from reverie.envs.episode import make_action_map
from reverie.envs.errors import check_reward
from reverie.envs.jax_env import JaxEnv, from_arrays, to_arrays, to_numpy
from reverie.envs.jax_setup import start_jax
from reverie.envs.jax_task import Arrival, key_of
from reverie.envs.make import has_jax_vector, make_env, max_episode_steps_of
from reverie.envs.vector import allocate_rows, blank_rows, row_layout


class JaxVector:
    """``num_envs`` copies of one env, stepped together on JAX's device."""

    def __init__(self, config: EnvConfig, seed: int, stream: str, num_envs: int) -> None:
        env = make_env(config)
        if not has_jax_vector(config, env):
            raise _refusal(config, env)
        own: JaxEnv = env.unwrapped  # type: ignore[assignment]
        self.num_envs = num_envs
        self.specs = read_specs(env, max_episode_steps_of(env))
        self.crashes = 0
        self._task = own.task
        self._limit = self.specs.max_episode_steps or math.inf
        self._seed, self._stream = seed, stream
        self._to_env = make_action_map(self.specs.action, own.action_space)
        self._layout = row_layout(self.specs, config.log_keys)
        self._log_keys = [(f"log/{key}", key) for key in config.log_keys]
        self._chunk = math.ceil(math.sqrt(num_envs))
        """Copies that are reset by one call: few, since most steps reset few; not one, since all may end at once."""
        self._moments = self._task.blank(num_envs)
        self._numbers = np.full(num_envs, -1)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._pending = np.ones(num_envs, bool)
        self._compile()

    def _compile(self) -> None:
        """Compile both programs now, so that whoever measures the first steps does not measure this."""
        nobody = np.full(self._chunk, self.num_envs)
        self._task.reset_some(self._moments, nobody, key_of(np.zeros(self._chunk)))
        self._task.step_all(self._moments[0], self._map_actions(self.specs.action.zeros(self.num_envs)))

    def reset(self) -> Row:
        """Start the next episode in every env."""
        return self._arrive(begins=np.ones(self.num_envs, bool), steps=np.zeros(self.num_envs, bool))

    def step(self, action: Array, active: Array | None = None) -> Row:
        """As in other vectors: an env that is due for a reset ignores its action, an inactive one stays as it is."""
        playing = np.ones(self.num_envs, bool) if active is None else active
        before = self._moments
        self._moments = self._task.step_all(before[0], self._map_actions(action))
        if active is not None:
            self._moments = _select()(active, self._moments, before)
        rows = self._arrive(begins=playing & self._pending, steps=playing & ~self._pending)
        if active is not None:
            blank_rows(rows, ~active)
        return rows

    def _map_actions(self, action: Array) -> Array:
        if self.specs.action.kind == "discrete":
            return np.asarray(action + self.specs.action.start[0])
        return np.asarray(self._to_env(action))

    def _arrive(self, begins: Array, steps: Array) -> Row:
        """The rows, after resets of the envs ``begins``. The envs ``steps`` were stepped."""
        self._begin(np.flatnonzero(begins))
        self._elapsed[begins] = 0
        self._elapsed[steps] += 1
        arrival: Arrival = to_numpy(self._moments[1])
        rows = allocate_rows(self._layout, self.num_envs)
        self._write_values(rows, arrival)
        rows["reward"][:] = np.where(steps, arrival.reward, 0)
        rows["is_first"][:] = begins
        rows["terminated"][:] = arrival.terminated & steps
        rows["truncated"][:] = (self._elapsed >= self._limit) & steps
        _check_rewards(rows["reward"])
        self._pending = np.where(steps | begins, rows["terminated"] | rows["truncated"], self._pending)
        return rows

    def _write_values(self, rows: Row, arrival: Arrival) -> None:
        for key, values in flatten_observation(self._task.observation_space, arrival.observation).items():
            rows[key][:] = values.reshape(rows[key].shape)
        for row_key, key in self._log_keys:
            rows[row_key][:] = arrival.info.get(key, 0)

    def _begin(self, indices: Array) -> None:
        """Start the next episode in these envs. A seed is hashed for each of them: once per episode."""
        self._numbers[indices] += 1
        numbers = indices + self._numbers[indices] * self.num_envs
        seeds = np.array([derive_seed(self._seed, self._stream, number) for number in numbers.tolist()], np.uint32)
        for first in range(0, len(indices), self._chunk):
            chunk = slice(first, first + self._chunk)
            missing = self._chunk - len(indices[chunk])
            padded = np.pad(indices[chunk], (0, missing), constant_values=self.num_envs)
            self._moments = self._task.reset_some(self._moments, padded, key_of(np.pad(seeds[chunk], (0, missing))))

    def state(self) -> State:
        return {
            "episodes": self._numbers.copy(),
            "elapsed": self._elapsed.copy(),
            "pending": self._pending.copy(),
            "moments": to_arrays(self._moments),
        }

    def load_state(self, state: State) -> None:
        saved = len(state["episodes"])
        if saved != self.num_envs:
            raise RunError(
                f"The checkpoint has {count(saved, 'env')}, this run has {self.num_envs}.",
                f"Set env.num_envs={saved} to continue, or start a new run.",
            )
        try:
            self._moments = from_arrays(self._moments, state["moments"])
        except ValueError as error:
            raise RunError(f"The envs cannot be restored: {error}.", "Use the versions in manifest.json.") from error
        self._numbers, self._elapsed = state["episodes"].copy(), state["elapsed"].copy()
        self._pending = state["pending"].copy()

    def check_restored(self, now: Row) -> int:
        """No episode can differ: states are loaded, not replayed."""
        return 0

    def close(self) -> None:
        """Nothing is open."""


@cache
def _select() -> Any:
    """Compiled: the new moments of the chosen envs, the old ones of the others."""
    jax = start_jax()

    def select(chosen: Any, new: Any, old: Any) -> Any:
        def of_leaf(one: Any, other: Any) -> Any:
            return jax.numpy.where(chosen.reshape(-1, *[1] * (one.ndim - 1)), one, other)

        return jax.tree.map(of_leaf, new, old)

    return jax.jit(select)


def _check_rewards(rewards: Array) -> None:
    if not np.isfinite(rewards).all():
        index = int(np.flatnonzero(~np.isfinite(rewards))[0])
        check_reward(rewards[index], f"of env {index}")


def _refusal(config: EnvConfig, env: gym.Env[Any, Any]) -> ConfigError:
    advice = "Use env.vector=sync or env.vector=process instead."
    if not isinstance(env.unwrapped, JaxEnv):
        return ConfigError(f"'{config.id}' is not written in JAX.", advice)
    return ConfigError(
        "With env.vector=jax there can be no env.wrappers, env.obs, env.vary or actions of parts.", advice
    )
