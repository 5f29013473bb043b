"""Vectors of a backend that steps many envs at once and cannot save them: EnvPool, and ale_py's own vector.

Rows mean the same as in the other vectors: the last row of an episode has its true last observation, and the call after
it ignores the action and returns the first row of the next episode. Time limits are counted here, because backends
report an episode that ends by itself in the last step before its limit as truncated.

A resume starts new episodes with new seeds. Those that were not over are truncated, with their last observation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.rng import derive_seed
from reverie.core.types import Array, Row, State, is_last, observation_keys
from reverie.envs.batch_task import BatchTask, check_settings, find_leaves, reward_map
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs
from reverie.envs.vector import allocate_rows, blank_rows, row_layout

Results = tuple[Any, Array, Array, Array]
"""Observation, reward, terminated, truncated."""


class BatchVector:
    """``num_envs`` copies of one env. Subclasses open the backend, start episodes and step."""

    def __init__(self, config: EnvConfig, seed: int, stream: str, num_envs: int) -> None:
        check_settings(config)
        self.num_envs = num_envs
        self.crashes = 0
        self._config = config
        self._task = self._find_task(config)
        self._map_rewards = reward_map(config, self._task.wrappers)
        self.specs = make_specs(config)
        self._limit = self.specs.max_episode_steps
        self._layout = row_layout(self.specs, ())
        self._columns = [(key, spec.dtype, spec.shape) for key, spec in self.specs.observations.items()]
        self._is_plain = list(self.specs.observations) == ["obs"]
        self._origin = (seed, stream)
        self._opened = 0
        """How often the backend was opened: a resume opens it again, with other seeds."""
        self._forget()
        self._open()

    def _find_task(self, config: EnvConfig) -> BatchTask:
        raise NotImplementedError

    def _open(self) -> None:
        """Make the backend. Its envs have had no reset."""
        raise NotImplementedError

    def _begin(self, envs: Array) -> Any:
        """Start an episode in the envs (N,) of this mask, finished or not. Returns their observations, in order."""
        raise NotImplementedError

    def _advance(self, action: Array, envs: Array | None) -> Results:
        """Step the envs of the mask, or all. Those that are over start their next episode instead."""
        raise NotImplementedError

    def _forget(self) -> None:
        """All envs are due for a reset that the backend does not do by itself."""
        self._pending, self._forced = np.ones(self.num_envs, bool), np.ones(self.num_envs, bool)
        self._lost = np.zeros(self.num_envs, bool)
        self._needs_care = self._some_begin = True
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._last: Row = {}

    def _seeds(self) -> list[int]:
        """A seed for each env, different after every resume."""
        seed, stream = self._origin
        return [derive_seed(seed, stream, "batch", self._opened, index) for index in range(self.num_envs)]

    def reset(self) -> Row:
        """Start the next episode in every env."""
        self._pending[:] = self._forced[:] = True
        self._lost[:] = False
        self._needs_care = True
        return self.step(self.specs.action.zeros(self.num_envs))

    def step(self, action: Array, active: Array | None = None) -> Row:
        if self._needs_care or active is not None:
            rows = self._careful_step(action, active)
        else:
            rows = self._rows(self._advance(action, None), self._pending)
            self._finish(rows)
        return rows

    def _careful_step(self, action: Array, active: Array | None) -> Row:
        """A step in which some envs rest, are lost, or need a reset that the backend does not do by itself."""
        chosen = np.ones(self.num_envs, bool) if active is None else active
        begun, lost = self._forced & chosen & ~self._lost, self._lost & chosen
        moved = chosen & ~begun & ~lost
        self._some_begin = True
        rows = allocate_rows(self._layout, self.num_envs)
        blank_rows(rows, np.ones(self.num_envs, bool))
        if moved.any():
            self._put(rows, moved, self._rows(self._advance(action, moved), self._pending[moved]))
        if begun.any():
            count = int(begun.sum())
            nothing, first = np.zeros(count, bool), np.ones(count, bool)
            self._put(rows, begun, self._rows((self._begin(begun), nothing, nothing, nothing), first))
            self._forced &= ~begun
        if lost.any():
            self._put(rows, lost, {key: array[lost] for key, array in self._last.items()})
            self._lost &= ~lost
        self._needs_care = True
        self._finish(rows, chosen)
        return rows

    def _put(self, rows: Row, envs: Array, own: Row) -> None:
        for key, values in own.items():
            rows[key][envs] = values

    def _rows(self, results: Results, is_first: Array) -> Row:
        """The rows of some envs, from what the backend returned for them."""
        observation, reward, terminated, truncated = results
        if self._task.observe is not None:
            observation = self._task.observe(observation)
        leaves = {"obs": observation} if self._is_plain else find_leaves(observation, self.specs)
        count = len(reward)
        rows = {
            key: np.ascontiguousarray(leaves[key], dtype).reshape(count, *shape) for key, dtype, shape in self._columns
        }
        rewards = np.array(reward, np.float32)
        if self._some_begin:
            rewards[is_first] = 0
        if self._map_rewards is not None:
            rewards = np.asarray(self._map_rewards(rewards), np.float32)
        rows |= {"reward": rewards, "is_first": is_first.copy()}
        return rows | {"terminated": np.array(terminated, bool), "truncated": np.array(truncated, bool)}

    def _finish(self, rows: Row, chosen: Array | None = None) -> None:
        """Count steps, truncate at the time limit, and note what the next call has to do."""
        self._elapsed += 1
        if self._some_begin:
            self._elapsed[rows["is_first"]] = 0
        over = is_last(rows)
        if self._limit is not None and self._elapsed.max() >= self._limit:
            at_limit = self._elapsed >= self._limit
            rows["truncated"] |= at_limit
            self._forced |= at_limit & ~over
            over |= at_limit
            self._needs_care = True
        self._pending = over if chosen is None else np.where(chosen, over, self._pending)
        self._some_begin = bool(self._pending.any())
        if self._needs_care:
            self._needs_care = bool(self._forced.any() or self._lost.any())

    def state(self) -> State:
        """Not the envs: which of them are due for a reset, and how often the backend was opened."""
        return {"opened": self._opened, "pending": self._pending.copy()}

    def load_state(self, state: State) -> None:
        check_pending_count(state["pending"], self.num_envs)
        self._opened = int(state["opened"]) + 1
        self._forget()
        self._pending = np.array(state["pending"], bool)
        self._open()

    def check_restored(self, now: Row) -> int:
        """Every episode that was not over is truncated by the next row."""
        self._lost = ~self._pending
        kept = {key: now[key].copy() for key in observation_keys(now)}
        flags = {key: np.zeros(self.num_envs, bool) for key in ("is_first", "terminated")}
        self._last = {
            **kept, "reward": np.zeros(self.num_envs, np.float32), **flags, "truncated": np.ones(self.num_envs, bool)
        }  # fmt: skip
        return int(self._lost.sum())

    def close(self) -> None:
        raise NotImplementedError


def check_pending_count(pending: Array, num_envs: int) -> None:
    """Raise RunError if a saved state is that of another number of envs."""
    from reverie.envs.vector import check_env_count

    check_env_count(dict.fromkeys(map(str, range(len(pending)))), num_envs)
