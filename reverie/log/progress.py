"""Progress lines for work that may take a while.

    with progress("encoding video", total=len(frames)) as task:
        for frame in frames:
            ...
            task.advance()

Nothing is shown for the first two seconds, so that quick work leaves no trace. Then a terminal gets a line that moves,
a log gets one plain line, and someone who asked for quiet gets nothing. A console with a live table takes the line into
it. The clock on the wall decides here what is *shown* and nothing else.
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
    """A piece of work: what it is, how much of it is done and, if known, how much there is."""

    def __init__(self, text: str, total: float | None = None) -> None:
        self.text = text
        self.total = total
        self.done = 0.0
        self.began = time.perf_counter()

    def advance(self, amount: float = 1) -> None:
        """So much more is done."""
        self.done += amount

    def count(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items; each is done when the next one is asked for."""
        for item in items:
            yield item
            self.advance()

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None if nobody knows how much there is."""
        return min(1.0, self.done / self.total) if self.total else None


class Place(Protocol):
    """Where tasks are shown. ``begin`` is called from another thread than the work's."""

    def begin(self, task: Task) -> None: ...

    def end(self, task: Task) -> None: ...


class Nowhere:
    """For those who asked for quiet."""

    def begin(self, task: Task) -> None: ...

    def end(self, task: Task) -> None: ...


class PlainLines:
    """One line per task, for logs."""

    def begin(self, task: Task) -> None:
        print(f"{task.text} ...", file=sys.stderr, flush=True)

    def end(self, task: Task) -> None: ...


class MovingLine:
    """A line at the bottom of a terminal, which is gone when the work is done."""

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
    """A task as one line for rich: its name, a bar if it is known how much there is, and how long it will take."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    seconds = time.perf_counter() - task.began
    line = Table.grid(padding=(0, 1))
    cells: list[Any] = [Text(task.text, style="cyan", overflow="ellipsis", no_wrap=True)]
    if task.share is not None:
        cells += [ProgressBar(total=1, completed=task.share, width=24), Text(f"{task.share:4.0%}", style="bold")]
    left = f"{in_words(seconds * (1 / task.share - 1))} left" if task.share else f"for {in_words(seconds)}"
    line.add_row(*cells, Text(left, style="dim", no_wrap=True))
    return line


def in_words(seconds: float) -> str:
    """A time as people say it: 42 s, 3:05, 2:41:30, 3 d 4 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


_place: ContextVar[Place | None] = ContextVar("place of progress lines", default=None)


@contextmanager
def shown_in(place: Place) -> Iterator[None]:
    """Every progress line of this block goes to ``place``."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


@contextmanager
def quiet_progress(quiet: bool = True) -> Iterator[None]:
    """No progress line in this block, if it is to be quiet."""
    with shown_in(Nowhere()) if quiet else nullcontext():
        yield


@contextmanager
def progress(text: str, total: float | None = None, quiet: bool = False) -> Iterator[Task]:
    """Show that ``text`` is being done; call ``advance`` on what is yielded if there is a ``total``."""
    task = Task(text, total)
    showing = _Showing(task, Nowhere() if quiet else _place.get() or _default_place())
    showing.timer.start()
    try:
        yield task
    finally:
        showing.stop()


class _Showing:
    """Begins to show a task after a while, unless it is over by then."""

    def __init__(self, task: Task, place: Place) -> None:
        self.task, self.place = task, place
        self.lock = threading.Lock()
        self.is_over = self.is_shown = False
        self.timer = threading.Timer(DELAY_SECONDS, self.show)
        self.timer.daemon = True

    def show(self) -> None:
        with self.lock:
            if not self.is_over:
                self.is_shown = True
                self.place.begin(self.task)

    def stop(self) -> None:
        self.timer.cancel()
        with self.lock:
            self.is_over = True
            if self.is_shown:
                self.place.end(self.task)


def _default_place() -> Place:
    return MovingLine() if is_watched() else PlainLines()


def is_watched() -> bool:
    """Whether somebody looks at the errors' stream: a real terminal, and no machine that only keeps a log."""
    is_plain = os.environ.get("CI") or os.environ.get("TERM", "").lower() in ("dumb", "unknown", "")
    return sys.stderr.isatty() and not is_plain
