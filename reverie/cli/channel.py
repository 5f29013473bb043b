"""The socket between ``train --seed 1,2`` and the processes that it starts.

Standard output is not used, because envs may print to it. The socket also closes when the parent process ends
for any reason: the child then saves and stops.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from threading import Thread
from typing import Any

OPTION = "--channel"
Result = dict[str, Any]


class Child:
    """A process started with one end of a socket, whose number it receives as ``--channel``."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen([*command, OPTION, str(number)], pass_fds=(number,), **options)

    def result(self) -> Result | None:
        """The result that the ended process has sent. None if it sent nothing."""
        self._socket.setblocking(False)  # a process that the child left behind may hold the other end
        sent = b""
        with self._socket, suppress(BlockingIOError, ConnectionError):
            while part := self._socket.recv(1 << 16):
                sent += part
        try:
            result: Result = json.loads(sent)
        except ValueError:
            return None
        return result


class Parent:
    """The child's end of the socket."""

    def __init__(self, number: int) -> None:
        os.set_inheritable(number, False)
        self._socket = socket.socket(fileno=number)
        Thread(target=self._watch, name="parent", daemon=True).start()

    def send(self, result: Result) -> None:
        with suppress(OSError):  # if the parent is gone, the run folder still has the result
            self._socket.sendall(json.dumps(result).encode())

    def _watch(self) -> None:
        """Stop when the parent has ended. It never sends anything, so ``recv`` returns only then."""
        with suppress(OSError):
            self._socket.recv(1)
            os.kill(os.getpid(), signal.SIGUSR2)  # not ignored under nohup, and never taken for a second Ctrl-C
