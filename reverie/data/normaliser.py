"""Running normalisation of observations and rewards.

Usually this is a wrapper around each env. Here it is part of the session: rows are stored raw, and one set of
statistics scales the inputs of the policy and the batches of updates, so evaluation and export agree with training.

Observation statistics advance only at the end of a cycle. An update must see observations scaled as the policy saw
them, or PPO's probability ratio would not be 1 before its first step. No policy reads rewards, so reward statistics
advance just before an update and include the rewards that it learns from.
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

_MERGED_STEPS = 1000
"""Vector steps of stored data that are merged into the statistics at a time."""


class NormaliserConfig(Config):
    """How observations and rewards are scaled for the agent. Rows are always stored raw."""

    observation: Literal["off", "rolling", "static"] = "off"
    """Scale vector observations to mean 0 and standard deviation 1. off: never. rolling: with statistics of all rows so
    far. static: with statistics of the first ``static_rows`` rows."""
    static_rows: int = Field(10_000, ge=1)
    """Rows after which static statistics stop changing."""
    observation_clip: float = Field(10.0, gt=0)
    """Normalised observations are clipped to plus or minus this."""
    reward: bool = False
    """Divide rewards by the standard deviation of the running discounted return."""
    reward_discount: float = Field(0.99, ge=0, lt=1)
    """Discount of the running return, usually the algorithm's."""
    reward_clip: float = Field(10.0, gt=0)
    """Normalised rewards are clipped to plus or minus this."""
    freeze: Literal["never", "dataset"] = "never"
    """dataset: compute the statistics from the data of the buffers' sources only, not from collected rows. A policy
    that was trained offline then keeps its observation scale when it continues online."""


class RunningMoments:
    """Mean and variance of all merged values, in float64. 0 and 1 before the first value."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)  # sum of squared deviations from the mean
        self._refresh()

    def merge(self, values: Array) -> None:
        """Add values of shape (K, ...) with the parallel formula of Chan, Golub and LeVeque (1979)."""
        added = len(values)
        if added == 0:
            return
        values = values.astype(np.float64)
        mean = values.mean(axis=0)
        delta = mean - self.mean
        total = self.count + added
        self.squares = self.squares + ((values - mean) ** 2).sum(axis=0) + delta**2 * (self.count * added / total)
        self.mean = self.mean + delta * (added / total)
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
        """Compute what every env step needs, once per cycle."""
        self.offset = self.mean.astype(np.float32)
        self.scale = (1 / np.sqrt(self.variance + _SMALLEST_VARIANCE)).astype(np.float32)


class Normaliser:
    """Scales rows and batches, with statistics of collected rows and of stored data."""

    def __init__(self, config: NormaliserConfig, specs: Specs, num_envs: int) -> None:
        self.config = config
        self.num_envs = num_envs
        self._all_valid = np.ones(num_envs, bool)
        is_on = config.observation != "off"
        self._shapes = {
            key: spec.shape
            for key, spec in specs.observations.items()
            if is_on and spec.kind == "vector" and spec.dtype == "float32"
        }
        self.reset()

    def reset(self) -> None:
        self._observations = {key: RunningMoments(shape) for key, shape in self._shapes.items()}
        self._returns = RunningMoments(())
        self._running_return = np.zeros(self.num_envs)
        self._pending: list[Row] = []
        self._pending_rewards: list[Row] = []

    def observe(self, row: Row, valid: Array | None = None) -> None:
        """Record an arriving row of every ``valid`` env (default: all). It counts from the next :meth:`advance` on."""
        if self.config.freeze == "dataset":
            return
        if self._shapes:
            values = {key: row[key] for key in self._shapes}
            self._pending.append({**values, "valid": self._all_valid if valid is None else valid})
        if self.config.reward:
            self._pending_rewards.append({key: row[key] for key in _REWARD_KEYS})

    def advance(self) -> None:
        """Update all statistics with the recorded rows. Called at the end of a cycle."""
        self.advance_rewards()
        if self._pending:
            rows = stack_rows(self._pending, axis=0)  # (T, N, ...)
            self._pending = []
            self._merge_observations({key: rows[key][rows["valid"]] for key in self._shapes})

    def advance_rewards(self) -> None:
        """Update the reward statistics, not those of observations. Called before an update."""
        if not self._pending_rewards:
            return
        rows = stack_rows(self._pending_rewards, axis=0)  # (T, N)
        self._pending_rewards = []
        returns, self._running_return = self._discounted_returns(rows, self._running_return)
        self._returns.merge(returns[~rows["is_first"]])

    def learn_from(self, stored: Iterable[Row]) -> None:
        """Update all statistics at once with the ``valid`` rows (N, ...) of a dataset. Consumes the whole iterator."""
        keys = (*self._shapes, *_REWARD_KEYS, "valid")
        is_on = bool(self._shapes) or self.config.reward
        running = np.zeros(self.num_envs)  # separate from the returns of the envs' current episodes
        pending: list[Row] = []
        for row in stored:
            if is_on:
                pending.append({key: row[key] for key in keys})
            if len(pending) == _MERGED_STEPS:
                running, pending = self._merge_stored(stack_rows(pending, axis=0), running), []
        if pending:
            self._merge_stored(stack_rows(pending, axis=0), running)

    def normalise_observation(self, row: Row) -> Row:
        """A row or batch with its float vectors normalised. Returns the same object if nothing is normalised."""
        if not self._observations:
            return row
        clip = self.config.observation_clip
        scaled = dict(row)
        for key, moments in self._observations.items():
            values = (row[key] - moments.offset) * moments.scale
            np.minimum(np.maximum(values, -clip, out=values), clip, out=values)
            scaled[key] = values
        return scaled

    def observation_scaling(self) -> dict[str, tuple[Array, Array]]:
        """Offset and scale of every key that is normalised: ``(value - offset) * scale``, then clipped."""
        return {key: (moments.offset, moments.scale) for key, moments in self._observations.items()}

    def normalise_reward(self, reward: Array) -> Array:
        if not self.config.reward:
            return reward
        clip = self.config.reward_clip
        return np.clip(reward * self._returns.scale, -clip, clip)

    def normalise_batch(self, batch: Batch) -> Batch:
        """A sampled batch with its observations and rewards normalised."""
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
        pending: Row = state.get("pending", {})
        count: int = state["pending_length"]
        if pending and "valid" not in pending:  # older checkpoints
            pending = {**pending, "valid": np.ones((count, self.num_envs), bool)}
        self._pending = _unstack(pending, (*self._shapes, "valid"), count if self._shapes else 0)
        # Older checkpoints save observations and rewards together.
        rewards: Row = state.get("pending_rewards", pending)
        length = state.get("pending_rewards_length", count)
        self._pending_rewards = _unstack(rewards, _REWARD_KEYS, length if self.config.reward else 0)

    def _merge_stored(self, rows: Row, running: Array) -> Array:
        """Merge the valid ones of rows (T, N). Returns the running returns after the last row."""
        valid = rows["valid"]
        self._merge_observations({key: rows[key][valid] for key in self._shapes})
        if self.config.reward:
            returns, running = self._discounted_returns(rows, running)
            self._returns.merge(returns[valid & ~rows["is_first"]])
        return running

    def _merge_observations(self, values: Row) -> None:
        """Merge values (K, ...) of each key, oldest first."""
        for key, moments in self._observations.items():
            moments.merge(values[key][: self._rows_left(moments)])

    def _rows_left(self, moments: RunningMoments) -> int | None:
        """How many more rows these statistics accept. None: any number."""
        if self.config.observation != "static":
            return None
        return max(0, self.config.static_rows - moments.count)

    def _discounted_returns(self, rows: Row, running: Array) -> tuple[Array, Array]:
        """The running discounted return of each env at every row (T, N), and at the last row (N,).

        It restarts at first rows. These have no reward, so callers leave them out of the statistics.
        """
        reward, discount = rows["reward"], self.config.reward_discount * ~rows["is_first"]
        returns = np.empty(reward.shape)
        for t in range(len(reward)):
            running = returns[t] = running * discount[t] + reward[t]
        return returns, running


def _unstack(columns: Row, keys: Iterable[str], length: int) -> list[Row]:
    """Split columns (T, ...) into T rows."""
    arrays = {key: np.array(columns[key]) for key in keys} if length else {}
    return [{key: values[t] for key, values in arrays.items()} for t in range(length if arrays else 0)]
