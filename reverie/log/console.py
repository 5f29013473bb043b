"""What the person at the keyboard sees while a run trains: a live table on a terminal, plain lines everywhere else.

The plain lines go to run.log in any case. Nothing here changes what is trained.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from reverie.core.counters import Budget
from reverie.log.live_table import LiveTable, Screen
from reverie.log.metric_styles import Rules
from reverie.log.plain_rows import PlainRows
from reverie.log.progress import Task, is_watched
from reverie.log.sinks import ALERTS, read_jsonl
from reverie.log.table_data import TableData

PLAIN_WIDTH = 80


class Console:
    """A sink that shows records; ``say``, ``note`` and ``alert`` are for everybody else who has something to tell."""

    def __init__(
        self, folder: Path, budget: Budget, quiet: bool = False, rules: Rules | None = None, action_repeat: int = 1
    ) -> None:
        self.folder = folder
        self.screen = None if quiet else Screen()
        self.log: TextIO = (folder / "run.log").open("a", encoding="utf-8")
        self.rules = rules or Rules()
        self.budget = budget
        self.plain = PlainRows(budget, self.rules, action_repeat)
        self.board: TableData | None = None
        self.live: LiveTable | None = None
        self.has_told_crash = False
        self._told: set[str] = set()
        self._lock = threading.RLock()

    def start(self, title: str) -> None:
        """From here on a terminal shows a live table, with what the run has recorded so far in it."""
        if self.screen is None or not is_watched():
            return
        self.board = TableData(self.rules, self.budget)
        self.board.title = title
        self._recall()
        self.live = LiveTable(self.screen, self.board, self._lock)
        self.live.start()

    def say(self, text: str) -> None:
        """A line for the screen and the log."""
        self.note(text)
        self._print(text)

    def _print(self, text: str) -> None:
        if self.screen is None:
            return
        with self._lock:
            try:
                self.screen.print(text, markup=False)
            except OSError:  # the terminal is gone; that is no reason to stop training
                self.screen.quiet = True

    def note(self, text: str) -> None:
        """A line for the log alone."""
        with self._lock:
            self.log.write(text + "\n")
            self.log.flush()

    def alert(self, level: str, text: str, place: int | None = None) -> None:
        """Something to be seen: ``level`` is info, warning or error. The live table shows the last few."""
        where = "" if place is None else f" at {self.budget.place(place)}"
        self.note(f"{level}{where}: {text}")
        if self.board is None:
            self._print(textwrap.fill(f"{level}{where}: {text}", PLAIN_WIDTH, subsequent_indent="  "))
            return
        with self._lock:
            self.board.alert(level, text, place)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ALERTS:
            self.alert(record["level"], record["message"], record.get(self.budget.counter))
        elif kind in ("metrics", "machine"):
            if self.board is not None:
                with self._lock:
                    self.board.write(kind, record)
                    self.board.tick()
            self._tell_crash(record)
            self._tell_rows(self.plain.write(kind, record))
        if self.live is not None:
            self.live.refresh()

    def begin(self, task: Task) -> None:
        """A task that lasts, see :mod:`reverie.log.progress`."""
        with self._lock:
            if self.live is not None:
                self.live.tasks.append(task)
            elif task.text not in self._told:  # evaluations come often: a log need not name each
                self._told.add(task.text)
                self.say(f"{task.text} ...")

    def end(self, task: Task) -> None:
        with self._lock:
            if self.live is not None and task in self.live.tasks:
                self.live.tasks.remove(task)

    def stop(self) -> None:
        """Leave the table standing as it is; what is said from here on comes below it."""
        if self.live is not None:
            self.live.stop()
            self.live = None
        self._tell_rows(self.plain.release())

    def close(self) -> None:
        self.stop()
        self.log.close()

    def _recall(self) -> None:
        """Show what the run recorded before it was stopped; a log that somebody has spoilt is not shown."""
        assert self.board is not None
        for kind in ("machine", "metrics", *ALERTS):
            with suppress(ValueError, KeyError, TypeError, OSError):
                for record in read_jsonl(self.folder / f"{kind}.jsonl"):
                    if kind in ALERTS:
                        self.board.alert(record["level"], record["message"], record.get(self.budget.counter))
                    else:
                        self.board.write(kind, record)

    def _tell_rows(self, lines: list[str]) -> None:
        for line in lines:
            (self.say if self.board is None else self.note)(line)

    def _tell_crash(self, record: Mapping[str, Any]) -> None:
        """Once: from then on the numbers in machine.jsonl tell how it goes on."""
        if record.get("env/crashes", 0) and not self.has_told_crash:
            self.has_told_crash = True
            self.say("An env crashed and was started again; machine.jsonl counts how often (env/crashes).")
