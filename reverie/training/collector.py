"""Steps the envs and fills the buffer."""

from __future__ import annotations

import time

import numpy as np

from reverie.core.contracts import Buffer, Controller, Vector
from reverie.core.counters import Counters
from reverie.core.rng import Streams
from reverie.core.types import Array, Carry, Mode, Row, State, is_last
from reverie.log.recorder import Recorder
from reverie.policy import Policy


class Collector:
    """Holds where collection stands: the arriving row, the policy's carry, the unfinished episodes' returns."""

    def __init__(
        self, vector: Vector, policy: Policy, counters: Counters, recorder: Recorder, streams: Streams
    ) -> None:
        self.vector = vector
        self.policy = policy
        self.counters = counters
        self.recorder = recorder
        self.streams = streams
        self.controller: Controller | None = None
        self.now: Row = {}
        self.carry: Carry = {}
        self.returns: Array = np.zeros(vector.num_envs)
        self.lengths: Array = np.zeros(vector.num_envs, np.int64)
        self.parked: Array = np.zeros(vector.num_envs, bool)
        """Envs that have delivered their share of ``collect: {episodes}`` and rest until the others have."""
        self.lost_episodes = 0
        """Episodes of the loaded state that could not be restored; they are cut and new ones begin."""
        self.env_seconds = 0.0
        """Time that env steps have taken in this process; not saved, as nothing may depend on it."""

    @property
    def num_envs(self) -> int:
        return self.vector.num_envs

    def restart(self) -> None:
        """Begin new episodes everywhere."""
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self.parked = np.zeros(self.num_envs, bool)
        self.carry = self.policy.initial_carry(self.num_envs)
        self._receive(self.vector.reset(), self.policy.specs.action.zeros(self.num_envs))

    def collect_rows(self, buffer: Buffer, rows: int) -> None:
        """Add ``rows`` rows over all envs."""
        for _ in range(rows // self.num_envs):
            row = self._act()
            buffer.add(row)
            self._step(row)

    def collect_episodes(self, buffer: Buffer, episodes: int) -> None:
        """Add whole fresh episodes, the same number from each env: else short ones would be over-represented."""
        if not self.now["is_first"].all():
            self.restart()
        quota = episodes // self.num_envs
        finished = np.zeros(self.num_envs, np.int64)
        while True:
            row = self._act()
            buffer.add({**row, "valid": ~self.parked})
            finished += is_last(row) & ~self.parked
            self.parked = finished >= quota
            if self.parked.all():
                break
            self._step(row)
        self.restart()

    def state(self) -> State:
        returns, lengths = self.returns.copy(), self.lengths.copy()  # these go on in place
        return {"now": dict(self.now), "carry": dict(self.carry), "returns": returns, "lengths": lengths}

    def load_state(self, state: State) -> None:
        self.now, self.carry = dict(state["now"]), dict(state["carry"])
        self.returns, self.lengths = state["returns"].copy(), state["lengths"].copy()
        self.lost_episodes = self.vector.expect(self.now) if self.now else 0

    def _act(self) -> Row:
        """The arriving row completed with the action and the algorithm's extras."""
        clock = self.counters.clock()
        action, self.carry, extras = self.policy.act(self.now, self.carry, clock, self.streams["act"], Mode.COLLECT)
        if self.controller is not None:
            action = self.controller.act(self.now, self.streams["controller"])
        row = {key: value for key, value in self.now.items() if key != "previous_action"}
        return {**row, "action": action, **extras}

    def _step(self, row: Row) -> None:
        started = time.perf_counter()
        arriving = self.vector.step(row["action"], ~self.parked if self.parked.any() else None)
        self.env_seconds += time.perf_counter() - started
        self._receive(arriving, row["action"])

    def _receive(self, row: Row, previous_action: Array) -> None:
        self.now = {**row, "previous_action": previous_action}
        self.policy.normaliser.observe(row, ~self.parked)
        first = row["is_first"]
        num_first = int(np.count_nonzero(first))
        num_resting = int(np.count_nonzero(self.parked))  # their rows are blank and marked as first ones
        self.returns += row["reward"]
        self.lengths += 1
        if num_first:
            self.returns[first] = self.lengths[first] = 0
        self.counters.rows += self.num_envs - num_resting
        self.counters.env_steps += self.num_envs - num_first
        ended = is_last(row)
        if np.count_nonzero(ended):
            self._report_episodes(row, ended)

    def _report_episodes(self, row: Row, ended: Array) -> None:
        logs = [key for key in row if key.startswith("log/")]
        for env in np.flatnonzero(ended):
            self.counters.episodes += 1
            self.recorder.add_episode({
                "episode": self.counters.episodes, "env": int(env), "return": float(self.returns[env]),
                "length": int(self.lengths[env]), **{key: float(row[key][env]) for key in logs},
            })  # fmt: skip
