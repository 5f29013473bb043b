"""Running normalisation of observations and rewards.

Usually this is a wrapper around each env. Here it is a part of the session: rows are stored raw, and the same
numbers scale what the policy sees and what it learns from, so evaluation and export cannot disagree with training.

Observation statistics advance only at the end of a cycle: the update must see observations scaled as the policy saw
them, or the probability ratio of PPO would not be 1 before its first step. Nothing acts on rewards, so their
statistics advance just before an update and already know the rewards that it learns from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from pydantic import Field

from reverie.core.config import Config
from reverie.core.types import Array, Batch, Row, State
from reverie.data.rows import stack_rows

if TYPE_CHECKING:
    from reverie.core.specs import Specs

_SMALLEST_VARIANCE = 1e-8

_REWARD_KEYS = ("reward", "is_first")

_STORED_ROWS = 1000
"""Stored vector rows that are merged into the statistics at a time."""


class NormaliserConfig(Config):
    """How observations and rewards are scaled before an agent sees them. Rows are always stored raw."""

    observation: Literal["off", "rolling", "static"] = "off"
    """Whether vector observations are brought to mean 0 and deviation 1: never, with statistics that keep
    growing, or with those of the first ``static_rows`` rows."""
    static_rows: int = Field(10_000, ge=1)
    """Rows after which static statistics stop moving."""
    observation_clip: float = Field(10.0, gt=0)
    """Normalised observations are cut to plus or minus this."""
    reward: bool = False
    """Whether rewards are divided by the deviation of the running discounted return."""
    reward_discount: float = Field(0.99, ge=0, lt=1)
    """Discount of that running return; usually the algorithm's."""
    reward_clip: float = Field(10.0, gt=0)
    """Normalised rewards are cut to plus or minus this."""
    freeze: Literal["never", "dataset"] = "never"
    """dataset: only the data of a buffer's source move the statistics, rows that are collected do not. So a policy
    that was trained offline sees observations at the same scale when it goes on online."""


class RunningMoments:
    """Mean and variance of everything merged so far, in float64; before any data they are 0 and 1."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)  # sum of squared distances from the mean
        self._refresh()

    def merge(self, values: Array) -> None:
        """Add values of shape (K, ...) by the parallel formula of Chan, Golub and LeVeque (1979)."""
        added = len(values)
        if added == 0:
            return
        values = values.astype(np.float64)
        mean = values.mean(axis=0)
        gap = mean - self.mean
        total = self.count + added
        self.squares = self.squares + ((values - mean) ** 2).sum(axis=0) + gap**2 * (self.count * added / total)
        self.mean = self.mean + gap * (added / total)
        self.count = total
        self._refresh()

    @property
    def variance(self) -> Array:
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def state(self) -> State:
        return {"count": self.count, "mean": np.asarray(self.mean), "squares": np.asarray(self.squares)}

    def load_state(self, state: State) -> None:
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], np.float64)
        self.squares = np.array(state["squares"], np.float64)
        self._refresh()

    def _refresh(self) -> None:
        """What every step needs, worked out once per cycle."""
        self.offset = self.mean.astype(np.float32)
        self.scale = (1 / np.sqrt(self.variance + _SMALLEST_VARIANCE)).astype(np.float32)


class Normaliser:
    """Scales rows and batches; its statistics come from collected rows and from stored data."""

    def __init__(self, config: NormaliserConfig, specs: Specs, num_envs: int) -> None:
        self.config = config
        self.num_envs = num_envs
        is_on = config.observation != "off"
        self._shapes = {
            key: spec.shape
            for key, spec in specs.observations.items()
            if is_on and spec.kind == "vector" and spec.dtype == "float32"
        }
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._observations = {key: RunningMoments(shape) for key, shape in self._shapes.items()}
        self._returns = RunningMoments(())
        self._running_return = np.zeros(self.num_envs)
        self._pending: list[Row] = []
        self._pending_rewards: list[Row] = []

    def observe(self, row: Row, valid: Array | None = None) -> None:
        """Note an arriving row of every env, or of the ``valid`` ones; it counts from the next :meth:`advance` on."""
        if self.config.freeze == "dataset":
            return
        if self._shapes:
            valid = np.ones(self.num_envs, bool) if valid is None else valid
            self._pending.append({**{key: row[key] for key in self._shapes}, "valid": valid})
        if self.config.reward:
            self._pending_rewards.append({key: row[key] for key in _REWARD_KEYS})

    def advance(self) -> None:
        """End of a cycle: let the noted rows move the statistics."""
        self.advance_rewards()
        if self._pending:
            rows = stack_rows(self._pending, axis=0)  # (T, N, ...)
            self._pending = []
            self._merge_observations({key: rows[key][rows["valid"]] for key in self._shapes})

    def advance_rewards(self) -> None:
        """Just before an update: let the noted rewards move their statistics; those of observations stand still."""
        if not self._pending_rewards:
            return
        rows = stack_rows(self._pending_rewards, axis=0)  # (T, N)
        self._pending_rewards = []
        running, self._running_return = self._follow_returns(rows, self._running_return)
        self._returns.merge(running[~rows["is_first"]])

    def learn_from(self, stored: Iterable[Row]) -> None:
        """Let stored rows of every lane move the statistics at once, as far as they are ``valid``."""
        keys = (*self._shapes, *_REWARD_KEYS, "valid")
        is_on = bool(self._shapes) or self.config.reward
        running = np.zeros(self.num_envs)  # the lanes have no part in the episodes that the envs are playing
        kept: list[Row] = []
        for row in stored:
            if is_on:
                kept.append({key: row[key] for key in keys})
            if len(kept) == _STORED_ROWS:
                running, kept = self._merge_stored(stack_rows(kept, axis=0), running), []
        if kept:
            self._merge_stored(stack_rows(kept, axis=0), running)

    def normalise_observation(self, row: Row) -> Row:
        """A row or batch with its float vectors normalised; the same object when there is nothing to do."""
        if not self._observations:
            return row
        clip = self.config.observation_clip
        scaled = dict(row)
        for key, moments in self._observations.items():
            values = (row[key] - moments.offset) * moments.scale
            np.minimum(np.maximum(values, -clip, out=values), clip, out=values)
            scaled[key] = values
        return scaled

    def normalise_reward(self, reward: Array) -> Array:
        if not self.config.reward:
            return reward
        clip = self.config.reward_clip
        return np.clip(reward * self._returns.scale, -clip, clip)

    def normalise_batch(self, batch: Batch) -> Batch:
        """Observations and rewards of a batch, at the edge between buffer and algorithm."""
        scaled = self.normalise_observation(cast(Row, batch))
        return {**scaled, "reward": self.normalise_reward(batch["reward"])} if self.config.reward else scaled

    def state(self) -> State:
        return {
            "observations": {key: moments.state() for key, moments in self._observations.items()},
            "returns": self._returns.state(),
            "running_return": self._running_return,
            "pending_length": len(self._pending),
            "pending": stack_rows(self._pending, axis=0) if self._pending else {},
            "pending_rewards_length": len(self._pending_rewards),
            "pending_rewards": stack_rows(self._pending_rewards, axis=0) if self._pending_rewards else {},
        }

    def load_state(self, state: State) -> None:
        for key, moments in self._observations.items():
            moments.load_state(state["observations"][key])
        self._returns.load_state(state["returns"])
        self._running_return = np.array(state["running_return"], np.float64)
        pending = state.get("pending", {})
        if pending and "valid" not in pending:  # of an older checkpoint
            pending = {**pending, "valid": np.ones((state["pending_length"], self.num_envs), bool)}
        self._pending = _unstack(pending, (*self._shapes, "valid"), state["pending_length"] if self._shapes else 0)
        # Older checkpoints keep observations and rewards together.
        rewards = state.get("pending_rewards", pending)
        length = state.get("pending_rewards_length", state["pending_length"])
        self._pending_rewards = _unstack(rewards, _REWARD_KEYS, length if self.config.reward else 0)

    def _merge_stored(self, rows: Row, running: Array) -> Array:
        """Rows (T, N) of which only the valid ones count; the running returns after them."""
        valid = rows["valid"]
        self._merge_observations({key: rows[key][valid] for key in self._shapes})
        if self.config.reward:
            returns, running = self._follow_returns(rows, running)
            self._returns.merge(returns[valid & ~rows["is_first"]])
        return running

    def _merge_observations(self, values: Row) -> None:
        """Values (K, ...) of each key, oldest first."""
        for key, moments in self._observations.items():
            moments.merge(values[key][: self._rows_wanted(moments)])

    def _rows_wanted(self, moments: RunningMoments) -> int | None:
        """How many more rows may move these statistics (None: all)."""
        if self.config.observation != "static":
            return None
        return max(0, self.config.static_rows - moments.count)

    def _follow_returns(self, rows: Row, running: Array) -> tuple[Array, Array]:
        """The running discounted return at every row (T, N), each env on its own, and the last of them.

        It restarts where an episode starts; that row brought no reward, so it is not a sample.
        """
        reward, discount = rows["reward"], self.config.reward_discount * ~rows["is_first"]
        returns = np.empty(reward.shape)
        for t in range(len(reward)):
            running = returns[t] = running * discount[t] + reward[t]
        return returns, running


def _unstack(columns: Row, keys: Iterable[str], length: int) -> list[Row]:
    """Rows of one moment each out of columns (T, ...)."""
    arrays = {key: np.array(columns[key]) for key in keys} if length else {}
    return [{key: values[t] for key, values in arrays.items()} for t in range(length if arrays else 0)]
