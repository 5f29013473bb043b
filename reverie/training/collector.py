"""Steps the envs and fills buffers. This is the actor of a run in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from reverie.core.contracts import Controller, Vector
from reverie.core.counters import Counters
from reverie.core.rng import Streams
from reverie.core.types import Array, Block, Carry, Mode, Row, State, is_last
from reverie.data.rows import stack_rows
from reverie.log.recorder import Recorder
from reverie.policy import Policy
from reverie.training.interaction import ControlledPlayer, Interaction, PolicyPlayer


class RowSink(Protocol):
    """Receives collected rows: one buffer, or several."""

    def add(self, row: Row) -> None: ...


class BufferGroup:
    """Adds every row to each of its buffers."""

    def __init__(self, buffers: Sequence[RowSink]) -> None:
        self.buffers = buffers

    def add(self, row: Row) -> None:
        for buffer in self.buffers:
            buffer.add(dict(row))


class Collector:
    """Owns the state of collection: the arriving rows, the carry and the returns of unfinished episodes."""

    def __init__(
        self, vector: Vector, policy: Policy, counters: Counters, recorder: Recorder, streams: Streams
    ) -> None:
        self.policy = policy
        self.counters = counters
        self.recorder = recorder
        self.streams = streams
        self._player = PolicyPlayer(policy, Mode.COLLECT, counters.clock, lambda: streams["act"])
        self._interaction = Interaction(vector, self._player)
        self.returns: Array = np.zeros(vector.num_envs)
        self.lengths: Array = np.zeros(vector.num_envs, np.int64)
        self._active: Array | None = None
        """Envs that still play. The others have played their quota of ``collect: {episodes}``. None: all."""
        self._act_metrics: list[Array] = []
        """What acting reported during the current call. Empty between calls, so there is nothing to save."""
        self.lost_episodes = 0
        """Episodes of the loaded state that could not be restored. They end as truncated, and new ones begin."""
        self.env_seconds = 0.0
        """Time spent in env steps by this process. Not saved, because nothing may depend on it."""

    @property
    def vector(self) -> Vector:
        return self._interaction.vector

    @vector.setter
    def vector(self, vector: Vector) -> None:
        self._interaction.vector = vector

    @property
    def num_envs(self) -> int:
        return self.vector.num_envs

    @property
    def now(self) -> Row:
        """The rows that arrived last, with ``previous_action``. Empty before the first reset."""
        return self._interaction.now

    @property
    def carry(self) -> Carry:
        return self._player.carry

    def use_controller(self, controller: Controller | None) -> None:
        """Let a controller choose the actions. None gives them back to the policy."""
        self._player.mode = Mode.COLLECT if controller is None else Mode.OBSERVE
        self._interaction.player = self._player
        if controller is not None:
            self._interaction.player = ControlledPlayer(self._player, controller, lambda: self.streams["controller"])

    def restart(self) -> None:
        """Start new episodes in all envs."""
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self._active = None
        self._count(self._interaction.restart())

    def collect(self, policy_state: State | None, version: int, rows: int) -> Block:
        """Collect ``rows`` rows over all envs into a block (N, T), for a learner in another process.

        Within one process ``collect_rows`` is faster.
        """
        if policy_state is not None:
            self.policy.load_state(policy_state)
        done: list[Row] = []
        for _ in range(rows // self.num_envs):
            row = self.act()
            done.append({key: value.copy() for key, value in row.items()})
            self._step(row)
        self._report_act_metrics()
        return Block(stack_rows(done, axis=1), dict(self.now), version)

    def collect_rows(self, buffer: RowSink, rows: int) -> None:
        """Add ``rows`` rows, counted over all envs."""
        for _ in range(rows // self.num_envs):
            row = self.act()
            buffer.add(row)
            self._step(row)
        self._report_act_metrics()

    def collect_episodes(self, buffer: RowSink, episodes: int) -> None:
        """Add whole new episodes, the same number from each env, so that short ones are not over-represented."""
        if not self.now["is_first"].all():
            self.restart()
        quota = episodes // self.num_envs
        finished = np.zeros(self.num_envs, np.int64)
        active = np.ones(self.num_envs, bool)
        while True:
            row = self.act()
            buffer.add({**row, "valid": active})
            finished += is_last(row) & active
            active = finished < quota
            if not active.any():
                break
            self._active = None if active.all() else active
            self._step(row)
        self._report_act_metrics()
        self.restart()

    def act(self) -> Row:
        """The arriving row with its action and extras, as buffers store it."""
        row = self._interaction.act()
        del row["previous_action"]
        if self._interaction.act_metrics is not None:
            self._act_metrics.append(self._interaction.act_metrics)
            self._interaction.act_metrics = None  # so that nothing is left over that a checkpoint would lack
        return row

    def state(self) -> State:
        returns, lengths = self.returns.copy(), self.lengths.copy()  # these change in place
        return {"now": dict(self.now), "carry": dict(self.carry), "returns": returns, "lengths": lengths}

    def load_state(self, state: State) -> None:
        self._interaction.now, self._player.carry = dict(state["now"]), dict(state["carry"])
        self.returns, self.lengths = state["returns"].copy(), state["lengths"].copy()
        self.lost_episodes = self.vector.check_restored(self.now) if self.now else 0

    def _step(self, row: Row) -> None:
        started = time.perf_counter()
        arriving = self._interaction.step(row["action"], self._active)
        self.env_seconds += time.perf_counter() - started
        self._count(arriving)

    def _count(self, row: Row) -> None:
        """Update the normaliser, the counters and the returns with arriving rows."""
        self.policy.normaliser.observe(row, self._active)
        first = row["is_first"]
        num_envs, num_first = len(first), int(np.count_nonzero(first))  # inactive envs have blank first rows
        num_active = num_envs if self._active is None else int(np.count_nonzero(self._active))
        self.returns += row["reward"]
        self.lengths += 1
        if num_first:
            self.returns[first] = self.lengths[first] = 0
        self.counters.rows += num_active
        self.counters.env_steps += num_envs - num_first
        ended = is_last(row)
        if np.count_nonzero(ended):
            self._report_episodes(row, ended)

    def _report_act_metrics(self) -> None:
        """Record the means of what acting reported during one call."""
        if self._act_metrics:
            found = np.concatenate(self._act_metrics)
            self._act_metrics = []
            self.recorder.add("collect", {name: float(found[name].mean()) for name in found.dtype.names or ()})

    def _report_episodes(self, row: Row, ended: Array) -> None:
        envs = np.flatnonzero(ended)
        first = self.counters.episodes + 1
        self.counters.episodes += len(envs)
        self.recorder.add_episodes({
            "episode": range(first, first + len(envs)), "env": envs.tolist(), "return": self.returns[envs].tolist(),
            "length": self.lengths[envs].tolist(),
            **{key: row[key][envs].tolist() for key in row if key.startswith("log/")},
        })  # fmt: skip
