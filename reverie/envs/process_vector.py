"""Envs in worker processes, for envs whose steps take longer than a message.

Gymnasium's asynchronous vector keeps the reset flag in its worker and raises for the whole vector when one env fails.
Here rows and states equal those of :class:`~reverie.envs.vector.SyncVector` bit for bit, and a worker that dies is
restarted: each of its envs that was inside an episode returns an artificial final row (the last observation again,
reward 0, truncated) and continues with its next episode. So that this does not hide a bug of the env, the same
exception twice in a row ends the run.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import weakref

import numpy as np

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.types import Array, Row, State, is_last, observation_keys
from reverie.envs import worker as protocol
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs, num_workers
from reverie.envs.vector import blank_rows, check_env_count, differs
from reverie.envs.worker_process import WorkerDied, WorkerProcess

_MAX_CRASHES_IN_A_ROW = 10


class ProcessVector:
    """``num_envs`` copies of one env, distributed over worker processes."""

    def __init__(self, config: EnvConfig, seed: int, stream: str, num_envs: int) -> None:
        self.num_envs = num_envs
        self.specs = make_specs(config)
        self.crashes = 0
        self._max_crashes = config.max_crashes
        self._last_cause = ""
        self._episode_numbers = np.full(num_envs, -1)
        self._pending = np.ones(num_envs, bool)
        self._lost = np.zeros(num_envs, bool)
        """Envs whose current episode could not be restored."""
        self._last: Row = {}
        layout = protocol.shared_layout(self.specs, config.log_keys)
        memory_file = _anonymous_file(protocol.shared_size(layout, num_envs))
        self._rows = protocol.map_shared(mmap.mmap(memory_file, 0), layout, num_envs)
        self._sent = self._rows.pop("action")
        self._workers: list[WorkerProcess] = []
        self._shut_down = weakref.finalize(self, _shut_down, self._workers, memory_file)
        brief = {**protocol.describe_env(config), "seed": seed, "stream": stream, "num_envs": num_envs}
        for indices in np.array_split(np.arange(num_envs), num_workers(config, num_envs)):
            own = {**brief, "first": int(indices[0]), "count": len(indices)}
            self._workers.append(WorkerProcess(own, memory_file))
        self._await_start()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, in the order of their envs."""
        return [worker.pid for worker in self._workers]

    def reset(self) -> Row:
        """Start the next episode in every env."""
        every_env = np.ones(self.num_envs, bool)
        return self._exchange(protocol.BEGIN, every_env, every_env)

    def step(self, action: Array, active: Array | None = None) -> Row:
        self._sent[:] = action
        return self._exchange(protocol.STEP, self._pending, active)

    def state(self) -> State:
        state: State = {}
        for worker in self._workers:
            try:
                answer = worker.ask(protocol.GET_STATE)
            except WorkerDied as death:
                self._lose_episodes(worker, death)
                self._abandon(self._last, np.array(worker.indices))
                answer = self._ask(worker, protocol.GET_STATE)
            state |= protocol.decode_state(answer)
        return state

    def load_state(self, state: State) -> None:
        check_env_count(state, self.num_envs)
        episodes = [state[str(index)] for index in range(self.num_envs)]
        self._episode_numbers = np.array([episode["episode"] for episode in episodes])
        self._pending = np.array([episode["pending"] for episode in episodes], bool)
        self._lost = np.array([episode.get("lost", False) for episode in episodes], bool)
        for worker in self._workers:
            own = {str(index): state[str(index)] for index in worker.indices}
            try:
                worker.ask(protocol.LOAD_STATE, protocol.encode_state(own))
            except WorkerDied as death:
                self._lose_episodes(worker, death)
        self._last = {key: array.copy() for key, array in self._rows.items()}

    def check_restored(self, now: Row) -> int:
        lost = np.flatnonzero(~self._pending & (self._lost | differs(self._last, now)))
        self._abandon(now, lost)
        self._lost[:] = False
        self._last = {key: array.copy() for key, array in self._rows.items()}
        return len(lost)

    def _abandon(self, rows: Row, indices: Array) -> None:
        """Let the next rows of these envs truncate their episodes, with the observations of ``rows``."""
        unfinished = [int(index) for index in indices if not self._pending[index]]
        if not unfinished:
            return
        for key in observation_keys(self._rows):
            self._rows[key][unfinished] = rows[key][unfinished]
        for worker in self._workers:
            own = [index for index in unfinished if index in worker.indices]
            if own:
                self._ask(worker, protocol.ABANDON, json.dumps(own).encode())

    def _lose_episodes(self, worker: WorkerProcess, death: WorkerDied) -> None:
        """Restart a worker that died while saving or loading. Its current episodes are lost."""
        self._count_crash(worker, death)
        indices = np.array(worker.indices)
        self._lost[indices] = ~self._pending[indices]
        self._restart(worker)

    def close(self) -> None:
        """End the workers. Also happens when the vector is garbage-collected or this process ends."""
        self._shut_down()

    def _await_start(self) -> None:
        try:
            for worker in self._workers:
                worker.answer()
        except WorkerDied as death:
            self.close()
            raise ConfigError(f"The environment cannot be made in a worker process:\n{death}") from death

    def _exchange(self, kind: bytes, begins: Array, active: Array | None) -> Row:
        """Send a command to the active envs of all workers. ``begins`` are the envs whose next row is a first row."""
        for worker in self._workers:
            indices = [] if active is None else [index for index in worker.indices if active[index]]
            worker.send(kind, b"" if active is None else json.dumps(indices).encode())
        begins = begins if active is None else begins & active
        deaths = {}
        for worker in self._workers:
            try:
                worker.answer()
            except WorkerDied as death:
                deaths[worker] = death
        for worker, cause in deaths.items():
            self._recover(worker, cause, begins)
        return self._take_rows(deaths, np.zeros(self.num_envs, bool) if active is None else ~active)

    def _take_rows(self, deaths: dict[WorkerProcess, WorkerDied], resting: Array) -> Row:
        rows = {key: array.copy() for key, array in self._rows.items()}
        self._episode_numbers += rows["is_first"] & ~resting
        self._pending = is_last(rows) | resting
        blank_rows(rows, resting)
        self._last = rows
        for worker in self._workers:
            # A reset does not prove that an env works: it may fail at every first step.
            if worker not in deaths and not rows["is_first"][worker.indices].all():
                worker.crashes_in_a_row = 0
        return rows

    def _recover(self, worker: WorkerProcess, death: WorkerDied, begins: Array) -> None:
        """Restart a dead worker and write the rows that its envs did not."""
        indices = np.array(worker.indices)
        beginning = indices[begins[indices]]
        while True:
            self._count_crash(worker, death)
            try:
                self._restart(worker)
                worker.ask(protocol.BEGIN, json.dumps(beginning.tolist()).encode())
                break
            except WorkerDied as again:
                death = again
                self._episode_numbers[beginning] += 1  # the reset itself may fail: try the next episode
        self._write_final_rows(indices[~begins[indices]])

    def _restart(self, worker: WorkerProcess) -> None:
        """Start a new process whose envs are due for a reset."""
        worker.stop()
        worker.start()
        worker.answer()
        no_actions = self.specs.action.zeros(0)
        states = {
            str(index): {"episode": int(self._episode_numbers[index]), "pending": True, "actions": no_actions}
            for index in worker.indices
        }
        worker.ask(protocol.LOAD_STATE, protocol.encode_state(states))

    def _write_final_rows(self, indices: Array) -> None:
        for key in self._rows:
            self._rows[key][indices] = 0
        for key in observation_keys(self._rows):
            self._rows[key][indices] = self._last[key][indices]
        self._rows["truncated"][indices] = True

    def _count_crash(self, worker: WorkerProcess, death: WorkerDied) -> None:
        """Raise for a violation of Gymnasium's API, the same exception twice in a row, or too many crashes."""
        self.crashes += 1
        worker.crashes_in_a_row += 1
        is_repeated = bool(death.cause) and death.cause == self._last_cause
        self._last_cause = death.cause
        count, in_a_row = self.crashes, worker.crashes_in_a_row
        if not (death.mistake or is_repeated or count > self._max_crashes or in_a_row > _MAX_CRASHES_IN_A_ROW):
            return
        self.close()
        if death.mistake:
            raise death.mistake from death
        fix = death.report.get("fix") or "`reverie envs check <env>` looks for common mistakes."
        if is_repeated:
            raise TrainingError(f"An env failed twice in the same way: {death}\n", fix) from death
        raise TrainingError(
            f"WorkerProcess processes have failed {count} times. The last failure: {death}\n",
            f"{fix} To allow more failures: env.max_crashes={2 * count}.",
        ) from death

    def _ask(self, worker: WorkerProcess, kind: bytes, payload: bytes = b"") -> bytes:
        try:
            return worker.ask(kind, payload)
        except WorkerDied as death:
            raise TrainingError(
                f"A worker process failed while its envs were saved or restored:\n\n{str(death).strip()}\n",
                "Resume the run from its last checkpoint.",
            ) from death


def _anonymous_file(size: int) -> int:
    """A file without a name. The system frees it with the last process that has it open, even after kill -9."""
    if hasattr(os, "memfd_create"):
        memory_file = os.memfd_create("reverie-rows")
    else:
        with tempfile.TemporaryFile() as file:
            memory_file = os.dup(file.fileno())
    os.ftruncate(memory_file, size)
    return memory_file


def _shut_down(workers: list[WorkerProcess], memory_file: int) -> None:
    for worker in workers:
        worker.stop()
    os.close(memory_file)
