"""The parent's side of a worker process: starts it, sends commands, and explains why it died."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from typing import Any

from reverie.envs import worker as protocol
from reverie.envs.errors import EnvError


class WorkerDied(Exception):
    """A worker process ended or failed. ``report`` is its last message, see :func:`reverie.envs.worker.serve`."""

    def __init__(self, text: str, report: dict[str, str] | None = None) -> None:
        super().__init__(text.strip())
        self.report = report or {}

    @property
    def cause(self) -> str:
        """The exception and its line. Empty if the process ended without one."""
        return self.report.get("cause", "")

    @property
    def mistake(self) -> EnvError | None:
        """The violation of Gymnasium's API by an env, if that was the cause. It would happen again."""
        is_violation = "topic" in self.report and not self.cause
        return EnvError(self.report["message"], self.report["fix"], self.report["topic"]) if is_violation else None


class WorkerProcess:
    """One worker process, which hosts the envs ``indices`` of a vector."""

    def __init__(self, brief: dict[str, Any], memory_file: int) -> None:
        self.indices = range(brief["first"], brief["first"] + brief["count"])
        self.crashes_in_a_row = 0
        self._brief, self._memory_file = brief, memory_file
        self.start()

    def start(self) -> None:
        """Start the process. Its first answer says whether its envs could be made."""
        self._channel, theirs = socket.socketpair()
        files = (theirs.fileno(), self._memory_file)
        command, environment = protocol.fresh_interpreter("reverie.envs.worker", *map(str, files))
        # In its own process group, Ctrl-C does not reach it while it starts.
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
        """Send a command. If the worker is dead, :meth:`answer` raises."""
        with contextlib.suppress(OSError):
            protocol.send(self._channel, kind, payload)

    def answer(self) -> bytes:
        """Wait for the answer to the last command."""
        try:
            kind, payload = protocol.receive(self._channel)
        except (EOFError, OSError) as error:
            raise WorkerDied(self._explain_exit()) from error
        if kind == protocol.FAILED:
            report = json.loads(payload)
            raise WorkerDied(report["message"], report)
        return payload

    def ask(self, kind: bytes, payload: bytes = b"") -> bytes:
        self.send(kind, payload)
        return self.answer()

    def stop(self) -> None:
        """Close the channel, which ends the worker, and wait for its exit."""
        self._channel.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _explain_exit(self) -> str:
        self.stop()
        code = self._process.returncode
        if code >= 0:
            return f"The worker process ended with exit code {code}."
        return f"The worker process was killed by signal {-code}. Signal 9 often means that memory ran out."
