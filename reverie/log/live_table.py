"""A live table at the bottom of a terminal. The clock on the wall decides when it is redrawn, and nothing else.

It is redrawn when records arrive, at most twice per second and so that drawing takes at most a hundredth of the time;
a thread redraws it once per second while nothing arrives, as in a long evaluation.
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
SHARE_FOR_DRAWING = 0.01


class Screen(RichConsole):
    """The errors' stream; a reader that goes away ends the printing, not the run."""

    def __init__(self) -> None:
        super().__init__(highlight=False, soft_wrap=True, stderr=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True


class LiveTable:
    """Draws a board over and over. ``lock`` guards the board against the thread that draws."""

    def __init__(self, screen: Screen, board: TableData, lock: threading.RLock) -> None:
        self.screen, self.board, self.lock = screen, board, lock
        self.tasks: list[Task] = []
        # Not soft-wrapped as the screen is: a line that the terminal breaks would be counted as one.
        self._live = Live(get_renderable=self._render, console=screen, auto_refresh=False, vertical_overflow="crop")
        self._due = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._stay_awake, name="console", daemon=True)

    def start(self) -> None:
        self._live.start(refresh=True)
        self._thread.start()

    def refresh(self) -> None:
        """Redraw if that is due."""
        with self.lock:
            began = time.perf_counter()
            if began < self._due or self._is_over.is_set():
                return
            self._draw()
            took = time.perf_counter() - began
            self._due = began + took + max(LEAST_SECONDS, took / SHARE_FOR_DRAWING)

    def stop(self) -> None:
        """Draw the last state and leave it standing."""
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
