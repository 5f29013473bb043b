"""Progress lines for work that may take a while.

    with progress("encoding video", total=len(frames)) as task:
        for frame in frames:
            ...
            task.advance()

Nothing is shown for the first two seconds, so quick work prints nothing. After that a terminal shows a progress line, a
log gets one plain line, and ``quiet`` shows nothing. A console with a live table shows the line inside the table.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

DELAY_SECONDS = 2.0

Item = TypeVar("Item")


class Task:
    """A piece of work: its name, how much of it is done and, if known, its total amount."""

    def __init__(self, text: str, total: float | None = None) -> None:
        self.text = text
        self.total = total
        self.done = 0.0
        self.began = time.perf_counter()

    def advance(self, amount: float = 1) -> None:
        """Add to the amount that is done."""
        self.done += amount

    def count(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items and count each as done when the next one is requested."""
        for item in items:
            yield item
            self.advance()

    @property
    def fraction(self) -> float | None:
        """The fraction that is done, from 0 to 1. None if the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else None


class Display(Protocol):
    """Shows tasks. ``begin`` is called from another thread than the one that works."""

    def begin(self, task: Task) -> None: ...

    def end(self, task: Task) -> None: ...


class NoDisplay:
    """Shows nothing, for ``quiet``."""

    def begin(self, task: Task) -> None: ...

    def end(self, task: Task) -> None: ...


class PlainLines:
    """One line per task, for logs."""

    def begin(self, task: Task) -> None:
        print(f"{task.text} ...", file=sys.stderr, flush=True)

    def end(self, task: Task) -> None: ...


class LiveLine:
    """A line at the bottom of a terminal, which disappears when the work is done."""

    def __init__(self) -> None:
        self._live: Any = None

    def begin(self, task: Task) -> None:
        from rich.console import Console
        from rich.live import Live

        screen = Console(stderr=True, highlight=False)
        self._live = Live(console=screen, get_renderable=lambda: task_line(task), transient=True, refresh_per_second=4)
        self._live.start(refresh=True)

    def end(self, task: Task) -> None:
        self._live.stop()


def task_line(task: Task) -> Any:
    """A task as one line for rich: its name, the time left, and a bar if its total is known."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    seconds = time.perf_counter() - task.began
    line = Table.grid(padding=(0, 1))
    cells: list[Any] = [Text(task.text, style="cyan", overflow="ellipsis", no_wrap=True)]
    if task.fraction is not None:
        cells += [ProgressBar(total=1, completed=task.fraction, width=24), Text(f"{task.fraction:4.0%}", style="bold")]
    left = f"{in_words(seconds * (1 / task.fraction - 1))} left" if task.fraction else f"for {in_words(seconds)}"
    line.add_row(*cells, Text(left, style="dim", no_wrap=True))
    return line


def in_words(seconds: float) -> str:
    """A duration in a readable form: 42 s, 3:05, 2:41:30, 3 d 4 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


_display: ContextVar[Display | None] = ContextVar("display of progress lines", default=None)


@contextmanager
def shown_in(display: Display) -> Iterator[None]:
    """Show every progress line of this block in ``display``."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


@contextmanager
def quiet_progress(quiet: bool = True) -> Iterator[None]:
    """Show no progress lines in this block if ``quiet``."""
    with shown_in(NoDisplay()) if quiet else nullcontext():
        yield


@contextmanager
def progress(text: str, total: float | None = None, quiet: bool = False) -> Iterator[Task]:
    """Show that ``text`` is being done. With a ``total``, call ``advance`` on the task that is yielded."""
    task = Task(text, total)
    delayed = _DelayedDisplay(task, NoDisplay() if quiet else _display.get() or _default_display())
    delayed.timer.start()
    try:
        yield task
    finally:
        delayed.stop()


class _DelayedDisplay:
    """Shows a task after a delay, unless it is over by then."""

    def __init__(self, task: Task, display: Display) -> None:
        self.task, self.display = task, display
        self.lock = threading.Lock()
        self.is_over = self.is_shown = False
        self.timer = threading.Timer(DELAY_SECONDS, self.show)
        self.timer.daemon = True

    def show(self) -> None:
        with self.lock:
            if not self.is_over:
                self.is_shown = True
                self.display.begin(self.task)

    def stop(self) -> None:
        self.timer.cancel()
        with self.lock:
            self.is_over = True
            if self.is_shown:
                self.display.end(self.task)


def _default_display() -> Display:
    return LiveLine() if is_terminal() else PlainLines()


def is_terminal() -> bool:
    """Whether stderr is a terminal that can redraw lines, and not the log of a CI job."""
    is_plain = os.environ.get("CI") or os.environ.get("TERM", "").lower() in ("dumb", "unknown", "")
    return sys.stderr.isatty() and not is_plain
