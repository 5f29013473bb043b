"""Signals that stop a run: it finishes its hook, saves, and exits with code 128 + signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from reverie.core.signals import EXIT_OFFSET, STOP_SIGNALS, URGENT_SIGNALS


class StopRequest:
    """Records the signals that asked for a stop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The first signal received."""
        self.received: list[signal.Signals] = []

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The code that shells expect from a program ended by a signal. 0 without one."""
        return EXIT_OFFSET + self.signal if self.signal is not None else 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        is_second = number in URGENT_SIGNALS and any(before in URGENT_SIGNALS for before in self.received)
        self.received.append(signal.Signals(number))
        self.signal = self.received[0]
        if is_second:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(EXIT_OFFSET + number)


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Turn signals into a stop request within this block. Does nothing outside of the main thread."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, request.handle) for number in STOP_SIGNALS if not _is_under_nohup(number)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_under_nohup(number: signal.Signals) -> bool:
    """Whether the user asked for a run that survives the closing of its terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
