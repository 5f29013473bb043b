"""Vector classes of envs that step many copies at once (Gymnasium's vector entry points).

They are fast, but one generator draws all resets, so episodes have no seeds of their own and rows differ from those of
the other vectors. Only vector classes whose state a suite declares can be saved.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import derive_seed
from reverie.core.specs import flatten_observation
from reverie.core.types import Array, Row, State, is_last
from reverie.envs.config import EnvConfig
from reverie.envs.episode import make_action_map
from reverie.envs.make import find_spec, is_dotted, make_specs, native_kind
from reverie.envs.suite import VectorState
from reverie.envs.suites import SUITES
from reverie.envs.vector import blank_rows
from reverie.envs.wrappers.text import has_text

_USE_OTHERS = "Use env.vector=sync or env.vector=process instead."


class NativeVector:
    """``num_envs`` copies of one env inside its own vector class."""

    def __init__(self, config: EnvConfig, seed: int, stream: str, num_envs: int) -> None:
        check_native(config)
        self.num_envs = num_envs
        self.specs = make_specs(config)
        if self.specs.action.parts:
            raise ConfigError("Native vectors do not support Dict or Tuple actions.", "Set env.vector=sync.")
        self.crashes = 0
        self._env = gym.make_vec(config.id, num_envs, vectorization_mode="vector_entry_point", **config.kwargs)
        check_autoreset(self._env, config.id)
        if has_text(self._env.single_observation_space):
            raise ConfigError(f"The vector class of '{config.id}' has text observations.", _USE_OTHERS)
        self._seed: int | None = derive_seed(seed, stream)
        self._pending = np.zeros(num_envs, bool)
        self._to_env = make_action_map(self.specs.action, self._env.single_action_space)
        self._is_box = isinstance(self._env.single_observation_space, gym.spaces.Box)
        self._columns = [(key, spec.dtype, (num_envs, *spec.shape)) for key, spec in self.specs.observations.items()]

    def reset(self) -> Row:
        """Start an episode in every env. Only the first call seeds the generator."""
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        nothing = np.zeros(self.num_envs, bool)
        self._pending = nothing
        return self._rows(observation, nothing, ~nothing, nothing, nothing)

    def step(self, action: Array, active: Array | None = None) -> Row:
        """As in other vectors, but inactive envs are stepped with the others and only their rows are blank."""
        is_first = self._pending
        observation, reward, terminated, truncated, _ = self._env.step(self._map_actions(action))
        rows = self._rows(observation, reward, is_first, terminated, truncated)
        self._pending = is_last(rows)
        if active is not None:
            blank_rows(rows, ~active)
        return rows

    def _map_actions(self, action: Array) -> Array:
        if isinstance(self._env.single_action_space, gym.spaces.Discrete):
            return np.asarray(action + self._env.single_action_space.start)
        return np.asarray(self._to_env(action))

    def _rows(self, observation: Any, reward: Any, *flags: Any) -> Row:
        space = self._env.single_observation_space
        leaves = {"obs": observation} if self._is_box else flatten_observation(space, observation)
        # Copies, because a vector class may write its next observations into the same memory.
        rows = {key: np.array(leaves[key], dtype).reshape(shape) for key, dtype, shape in self._columns}
        rows["reward"] = np.array(reward, np.float32)
        rows["is_first"], rows["terminated"], rows["truncated"] = (np.array(flag, bool) for flag in flags)
        return rows

    def state(self) -> State:
        return {"seed": self._seed, "env": self._vector_state().save(self._env.unwrapped)}

    def load_state(self, state: State) -> None:
        env, saver = self._env.unwrapped, self._vector_state()
        self._seed = state["seed"]
        saver.load(env, state["env"])
        if state["env"] is not None:
            self._pending = saver.pending(env)

    def check_restored(self, now: Row) -> int:
        """No episode can differ: states are loaded, not replayed."""
        return 0

    def _vector_state(self) -> VectorState:
        found = find_vector_state(type(self._env.unwrapped))
        if found is None:
            name = type(self._env.unwrapped).__name__
            raise RunError(f"The state of the vector class {name} cannot be saved.", _USE_OTHERS)
        return found

    def close(self) -> None:
        self._env.close()


def check_native(config: EnvConfig) -> None:
    """Raise ConfigError for settings that an env's own vector class does not support."""
    if is_dotted(config.id) or find_spec(config.id).vector_entry_point is None:
        raise ConfigError(f"'{config.id}' has no vector class of its own.", _USE_OTHERS)
    for name in ("wrappers", "log_keys", "max_episode_steps"):
        if getattr(config, name):
            raise ConfigError(f"env.{name} has no effect inside the env's own vector class.", _USE_OTHERS)


def can_save_native(config: EnvConfig) -> bool:
    """Whether a suite declares how to save this env's vector class."""
    if native_kind(config.id) != "native":
        return False
    check_native(config)
    entry = find_spec(config.id).vector_entry_point
    found = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    return find_vector_state(found) is not None


def find_vector_state(vector_class: Any) -> VectorState | None:
    """How to save this vector class. None if no suite declares it."""
    name = f"{vector_class.__module__}:{vector_class.__qualname__}"
    return next((suite.vector_states[name] for suite in SUITES if name in suite.vector_states), None)


def check_autoreset(env: gym.vector.VectorEnv[Any, Any, Any], env_id: str) -> None:
    """Rows need the true last observation of an episode, which only this mode returns."""
    if env.metadata.get("autoreset_mode") != AutoresetMode.NEXT_STEP:
        raise ConfigError(f"The vector class of '{env_id}' does not reset on the next step.", _USE_OTHERS)
