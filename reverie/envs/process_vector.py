"""Envs in worker processes of our own, for environments whose steps cost more than a message.

Gymnasium's asynchronous vector hides the reset flag in its worker and raises for the whole vector when one
env fails. Here rows and states are bit for bit those of :class:`~reverie.envs.vector.SyncVector`, and a
worker that dies is started again: each of its envs that was inside an episode gives a made-up final row
(the last observation again, reward 0, truncated), then goes on with its next episode. A mistake in the env
must not hide behind that: the same exception twice in a row ends the run.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import tempfile
import weakref
from typing import Any

import numpy as np

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.types import Array, Row, State, is_last, observation_keys
from reverie.envs import worker as protocol
from reverie.envs.config import EnvConfig
from reverie.envs.errors import EnvError
from reverie.envs.make import make_specs, num_workers
from reverie.envs.vector import blank_rows, check_env_count, differs

_MAX_CRASHES_IN_A_ROW = 10


class WorkerDied(Exception):
    """A worker ended or failed; ``report`` is what it could still tell, see :func:`reverie.envs.worker.serve`."""

    def __init__(self, text: str, report: dict[str, str] | None = None) -> None:
        super().__init__(text.strip())
        self.report = report or {}

    @property
    def cause(self) -> str:
        """Names the exception and its line; empty if the process ended without one."""
        return self.report.get("cause", "")

    @property
    def mistake(self) -> EnvError | None:
        """What an env did against the rules of Gymnasium: it will do so again."""
        is_one = "topic" in self.report and not self.cause
        return EnvError(self.report["message"], self.report["fix"], self.report["topic"]) if is_one else None


class Worker:
    """The parent's side of one worker process."""

    def __init__(self, brief: dict[str, Any], memory_file: int) -> None:
        self.places = range(brief["first"], brief["first"] + brief["count"])
        self.crashes_in_a_row = 0
        self._brief, self._memory_file = brief, memory_file
        self.start()

    def start(self) -> None:
        """Start the process; :meth:`answer` then tells whether its envs could be made."""
        self._channel, theirs = socket.socketpair()
        files = (theirs.fileno(), self._memory_file)
        command, environment = protocol.fresh_interpreter("reverie.envs.worker", *map(str, files))
        # A process group of its own keeps Ctrl-C away from it while it starts.
        self._process = subprocess.Popen(
            command,
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
        theirs.close()
        self.send(protocol.START, json.dumps(self._brief).encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Give a command. That a worker is dead shows when its answer is awaited."""
        with contextlib.suppress(OSError):
            protocol.send(self._channel, kind, payload)

    def answer(self) -> bytes:
        """Wait for the answer to the last command."""
        try:
            kind, payload = protocol.receive(self._channel)
        except (EOFError, OSError) as error:
            raise WorkerDied(self._epitaph()) from error
        if kind == protocol.FAILED:
            report = json.loads(payload)
            raise WorkerDied(report["message"], report)
        return payload

    def ask(self, kind: bytes, payload: bytes = b"") -> bytes:
        self.send(kind, payload)
        return self.answer()

    def stop(self) -> None:
        """Hang up, which ends the worker, and wait for its end."""
        self._channel.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _epitaph(self) -> str:
        self.stop()
        code = self._process.returncode
        if code >= 0:
            return f"The worker process ended with exit code {code}."
        return f"The worker process was ended by signal {-code}. Signal 9 often means that memory ran out."


class ProcessVector:
    """``num_envs`` copies of one env, shared out over worker processes."""

    def __init__(self, config: EnvConfig, seed: int, stream: str, num_envs: int) -> None:
        self.num_envs = num_envs
        self.specs = make_specs(config)
        self.crashes = 0
        self._max_crashes = config.max_crashes
        self._last_cause = ""
        self._numbers = np.full(num_envs, -1)
        self._pending = np.ones(num_envs, bool)
        self._lost = np.zeros(num_envs, bool)
        self._last: Row = {}
        layout = protocol.shared_layout(self.specs, config.log_keys)
        memory_file = _anonymous_file(protocol.shared_size(layout, num_envs))
        self._rows = protocol.map_shared(mmap.mmap(memory_file, 0), layout, num_envs)
        self._sent = self._rows.pop("action")
        self._workers: list[Worker] = []
        self._shut_down = weakref.finalize(self, _shut_down, self._workers, memory_file)
        brief = {**protocol.describe_env(config), "seed": seed, "stream": stream, "num_envs": num_envs}
        shares = np.array_split(np.arange(num_envs), num_workers(config, num_envs))
        for share in shares:
            self._workers.append(Worker({**brief, "first": int(share[0]), "count": len(share)}, memory_file))
        self._await_start()

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers, in the order of their envs."""
        return [worker.pid for worker in self._workers]

    def reset(self) -> Row:
        """Start the next episode in every env."""
        everywhere = np.ones(self.num_envs, bool)
        return self._exchange(protocol.BEGIN, everywhere, everywhere)

    def step(self, action: Array, active: Array | None = None) -> Row:
        self._sent[:] = action
        return self._exchange(protocol.STEP, self._pending, active)

    def state(self) -> State:
        state: State = {}
        for worker in self._workers:
            try:
                answer = worker.ask(protocol.GET_STATE)
            except WorkerDied as death:
                self._give_up(worker, death)
                self._show(self._last, np.array(worker.places))
                answer = self._ask(worker, protocol.GET_STATE)
            state |= protocol.decode_state(answer)
        return state

    def load_state(self, state: State) -> None:
        check_env_count(state, self.num_envs)
        parts = [state[str(place)] for place in range(self.num_envs)]
        self._numbers = np.array([part["episode"] for part in parts])
        self._pending = np.array([part["pending"] for part in parts], bool)
        self._lost = np.array([part.get("lost", False) for part in parts], bool)
        for worker in self._workers:
            share = {str(place): state[str(place)] for place in worker.places}
            try:
                worker.ask(protocol.LOAD_STATE, protocol.encode_state(share))
            except WorkerDied as death:
                self._give_up(worker, death)
        self._last = {key: array.copy() for key, array in self._rows.items()}

    def expect(self, now: Row) -> int:
        """After a restore: cut the episodes that do not show the rows the agent saw last; how many those are."""
        lost = np.flatnonzero(~self._pending & (self._lost | differs(self._last, now)))
        self._show(now, lost)
        self._lost[:] = False
        self._last = {key: array.copy() for key, array in self._rows.items()}
        return len(lost)

    def _show(self, rows: Row, places: Array) -> None:
        """Have the episodes at some places cut, with the observations of these rows."""
        going_on = [int(place) for place in places if not self._pending[place]]
        if not going_on:
            return
        for key in observation_keys(self._rows):
            self._rows[key][going_on] = rows[key][going_on]
        for worker in self._workers:
            own = [place for place in going_on if place in worker.places]
            if own:
                self._ask(worker, protocol.LOSE, json.dumps(own).encode())

    def _give_up(self, worker: Worker, death: WorkerDied) -> None:
        """Start a worker again that died while it saved or restored; its episodes that were under way are lost."""
        self._count_crash(worker, death)
        places = np.array(worker.places)
        self._lost[places] = ~self._pending[places]
        self._start_again(worker)

    def close(self) -> None:
        """End the workers; a vector that is forgotten or outlived by its process closes by itself."""
        self._shut_down()

    def _await_start(self) -> None:
        try:
            for worker in self._workers:
                worker.answer()
        except WorkerDied as death:
            self.close()
            raise ConfigError(f"The environment cannot be made in a worker process:\n{death}") from death

    def _exchange(self, kind: bytes, begins: Array, active: Array | None) -> Row:
        """Have the active envs of all workers do the same; ``begins`` says which owe the first row of an episode."""
        for worker in self._workers:
            places = [] if active is None else [place for place in worker.places if active[place]]
            worker.send(kind, b"" if active is None else json.dumps(places).encode())
        begins = begins if active is None else begins & active
        deaths = {}
        for worker in self._workers:
            try:
                worker.answer()
            except WorkerDied as death:
                deaths[worker] = death
        for worker, cause in deaths.items():
            self._revive(worker, cause, begins)
        return self._take_rows(deaths, np.zeros(self.num_envs, bool) if active is None else ~active)

    def _take_rows(self, deaths: dict[Worker, WorkerDied], resting: Array) -> Row:
        rows = {key: array.copy() for key, array in self._rows.items()}
        self._numbers += rows["is_first"] & ~resting
        self._pending = is_last(rows) | resting
        blank_rows(rows, resting)
        self._last = rows
        for worker in self._workers:
            # A reset does not show that an env works: it may fail at each first step.
            if worker not in deaths and not rows["is_first"][worker.places].all():
                worker.crashes_in_a_row = 0
        return rows

    def _revive(self, worker: Worker, death: WorkerDied, begins: Array) -> None:
        """Start a dead worker again and fill in the rows that it owes."""
        places = np.array(worker.places)
        beginning = places[begins[places]]
        while True:
            self._count_crash(worker, death)
            try:
                self._restart(worker, beginning)
                break
            except WorkerDied as again:
                death = again
                self._numbers[beginning] += 1  # the reset itself may fail: try the next episode
        self._write_final_rows(places[~begins[places]])

    def _restart(self, worker: Worker, beginning: Array) -> None:
        self._start_again(worker)
        worker.ask(protocol.BEGIN, json.dumps(beginning.tolist()).encode())

    def _start_again(self, worker: Worker) -> None:
        """A fresh process whose envs are due for a reset."""
        worker.stop()
        worker.start()
        worker.answer()
        void = self.specs.action.zeros(0)
        states = {
            str(place): {"episode": int(self._numbers[place]), "pending": True, "actions": void}
            for place in worker.places
        }
        worker.ask(protocol.LOAD_STATE, protocol.encode_state(states))

    def _write_final_rows(self, places: Array) -> None:
        for key in self._rows:
            self._rows[key][places] = 0
        for key in observation_keys(self._rows):
            self._rows[key][places] = self._last[key][places]
        self._rows["truncated"][places] = True

    def _count_crash(self, worker: Worker, death: WorkerDied) -> None:
        """Stop for a mistake in the env, the same exception twice in a row, or too many crashes."""
        self.crashes += 1
        worker.crashes_in_a_row += 1
        is_again = bool(death.cause) and death.cause == self._last_cause
        self._last_cause = death.cause
        count, in_a_row = self.crashes, worker.crashes_in_a_row
        if not (death.mistake or is_again or count > self._max_crashes or in_a_row > _MAX_CRASHES_IN_A_ROW):
            return
        self.close()
        if death.mistake:
            raise death.mistake from death
        fix = death.report.get("fix") or "`reverie envs check <env>` looks for the usual mistakes."
        if is_again:
            raise TrainingError(f"An environment failed twice in the same way: {death}\n", fix) from death
        raise TrainingError(
            f"Worker processes have failed {count} times. The last time: {death}\n",
            f"{fix} env.max_crashes={2 * count} lets the run go on with more.",
        ) from death

    def _ask(self, worker: Worker, kind: bytes, payload: bytes = b"") -> bytes:
        try:
            return worker.ask(kind, payload)
        except WorkerDied as death:
            raise TrainingError(
                f"A worker process failed while its envs were saved or restored:\n\n{str(death).strip()}\n",
                "Continue from the last checkpoint.",
            ) from death


def _anonymous_file(size: int) -> int:
    """A file without a name: the system frees it with the last process that holds it, even after kill -9."""
    if hasattr(os, "memfd_create"):
        memory_file = os.memfd_create("reverie-rows")
    else:
        with tempfile.TemporaryFile() as file:
            memory_file = os.dup(file.fileno())
    os.ftruncate(memory_file, size)
    return memory_file


def _shut_down(workers: list[Worker], memory_file: int) -> None:
    for worker in workers:
        worker.stop()
    os.close(memory_file)
