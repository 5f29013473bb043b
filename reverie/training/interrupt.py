"""Ctrl-C and SIGTERM ask a run to stop at the next sensible moment; a second one of either stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Remembers which signal asked for a stop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What shells expect of a program that a signal ended."""
        return 128 + self.signal if self.signal is not None else 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        is_second = self.signal is not None
        self.signal = signal.Signals(number)
        if is_second:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(self.exit_code)


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Turn signals into a request for the time of this block (only the main thread may)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, request.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
