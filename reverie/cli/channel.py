"""How ``train --seed 1,2`` and the processes that it starts talk: over a socket of their own.

Standard output belongs to the env, which may print whatever it likes. The socket also tells a process that its parent
is gone, however that ended: then it saves and stops, as nobody would wait for it any more.
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
    """A process that was started with one end of a socket; ``command`` takes its number with ``--channel``."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen([*command, OPTION, str(number)], pass_fds=(number,), **options)

    def result(self) -> Result | None:
        """What the process, which has ended, has sent; None if it did not come so far."""
        self._socket.setblocking(False)  # a process that it left behind may hold the other end
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
    """The other end, in the process that was started."""

    def __init__(self, number: int) -> None:
        os.set_inheritable(number, False)
        self._socket = socket.socket(fileno=number)
        Thread(target=self._watch, name="parent", daemon=True).start()

    def send(self, result: Result) -> None:
        with suppress(OSError):  # nobody there to hear it: the run's folder holds the same
            self._socket.sendall(json.dumps(result).encode())

    def _watch(self) -> None:
        """Nothing is ever sent this way, so there is something to read only when the parent has gone."""
        with suppress(OSError):
            self._socket.recv(1)
            os.kill(os.getpid(), signal.SIGUSR2)  # one that nohup does not turn off, and that is never a second Ctrl-C
