"""A live table at the bottom of a terminal. It is redrawn by wall-clock time, which influences nothing else.

Arriving records redraw it, at most twice per second and using at most 1 % of the time. A thread redraws it once per
second while no records arrive, as in a long evaluation.
"""

from __future__ import annotations

import threading
import time

from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.live import Live

from reverie.log.progress import Task
from reverie.log.table_data import TableData
from reverie.log.table_drawing import draw

LEAST_SECONDS = 0.5
IDLE_SECONDS = 1.0
DRAWING_FRACTION = 0.01
"""Upper bound of the fraction of time spent on drawing."""


class Screen(RichConsole):
    """Prints to stderr. If its reader goes away, printing ends and the run continues."""

    def __init__(self) -> None:
        super().__init__(highlight=False, soft_wrap=True, stderr=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True


class LiveTable:
    """Draws a board repeatedly. ``lock`` protects the board from the drawing thread."""

    def __init__(self, screen: Screen, board: TableData, lock: threading.RLock) -> None:
        self.screen, self.board, self.lock = screen, board, lock
        self.tasks: list[Task] = []
        # Not soft-wrapped like the screen: rich would count a line that the terminal wraps as one line.
        self._live = Live(get_renderable=self._render, console=screen, auto_refresh=False, vertical_overflow="crop")
        self._due = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._stay_awake, name="console", daemon=True)

    def start(self) -> None:
        self._live.start(refresh=True)
        self._thread.start()

    def refresh(self) -> None:
        """Redraw if enough time has passed."""
        with self.lock:
            began = time.perf_counter()
            if began < self._due or self._is_over.is_set():
                return
            self._draw()
            took = time.perf_counter() - began
            self._due = began + took + max(LEAST_SECONDS, took / DRAWING_FRACTION)

    def stop(self) -> None:
        """Draw the final state and leave it on the screen."""
        self._is_over.set()
        with self.lock:
            self.tasks.clear()
            try:
                self._live.stop()
            except OSError:
                self.screen.quiet = True
        self._thread.join()

    def _draw(self) -> None:
        try:
            self._live.refresh()
        except OSError:  # the terminal is gone
            self.screen.quiet = True

    def _stay_awake(self) -> None:
        while not self._is_over.wait(IDLE_SECONDS):
            self.refresh()

    def _render(self) -> RenderableType:
        with self.lock:
            size = self.screen.size
            return draw(self.board, size.width, max(3, size.height - 1), self.tasks, self.screen.options.ascii_only)
