"""Shows a run while it trains: a live table on a terminal, plain lines everywhere else and always in run.log."""

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
from reverie.log.progress import Task, is_terminal
from reverie.log.sinks import ALERTS, read_jsonl
from reverie.log.table_data import TableData

PLAIN_WIDTH = 80


class Console:
    """A sink that shows records. Other code prints through ``say``, ``note`` and ``alert``."""

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
        self.has_reported_crash = False
        self._named_tasks: set[str] = set()
        self._lock = threading.RLock()

    def start(self, title: str) -> None:
        """Show a live table if the screen is a terminal, filled with what the run has recorded so far."""
        if self.screen is None or not is_terminal():
            return
        self.board = TableData(self.rules, self.budget)
        self.board.title = title
        self._load_records()
        self.live = LiveTable(self.screen, self.board, self._lock)
        self.live.start()

    def say(self, text: str) -> None:
        """Print a line on the screen and in run.log."""
        self.note(text)
        self._print(text)

    def _print(self, text: str) -> None:
        if self.screen is None:
            return
        with self._lock:
            try:
                self.screen.print(text, markup=False)
            except OSError:  # the terminal is gone, but training continues
                self.screen.quiet = True

    def note(self, text: str) -> None:
        """Write a line to run.log only."""
        with self._lock:
            self.log.write(text + "\n")
            self.log.flush()

    def alert(self, level: str, text: str, position: int | None = None) -> None:
        """Show an alert. ``level`` is info, warning or error. The live table keeps the last few."""
        where = "" if position is None else f" at {self.budget.position(position)}"
        self.note(f"{level}{where}: {text}")
        if self.board is None:
            self._print(textwrap.fill(f"{level}{where}: {text}", PLAIN_WIDTH, subsequent_indent="  "))
            return
        with self._lock:
            self.board.alert(level, text, position)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ALERTS:
            self.alert(record["level"], record["message"], record.get(self.budget.counter))
        elif kind in ("metrics", "machine"):
            if self.board is not None:
                with self._lock:
                    self.board.write(kind, record)
                    self.board.tick()
            self._report_crash(record)
            self._print_rows(self.plain.write(kind, record))
        if self.live is not None:
            self.live.refresh()

    def begin(self, task: Task) -> None:
        """Show a task that takes a while, see :mod:`reverie.log.progress`."""
        with self._lock:
            if self.live is not None:
                self.live.tasks.append(task)
            elif task.text not in self._named_tasks:  # name frequent tasks such as evaluations once
                self._named_tasks.add(task.text)
                self.say(f"{task.text} ...")

    def end(self, task: Task) -> None:
        with self._lock:
            if self.live is not None and task in self.live.tasks:
                self.live.tasks.remove(task)

    def stop(self) -> None:
        """Stop updating the table. Later lines are printed below it."""
        if self.live is not None:
            self.live.stop()
            self.live = None
        self._print_rows(self.plain.release())

    def close(self) -> None:
        self.stop()
        self.log.close()

    def _load_records(self) -> None:
        """Fill the table with the records from before a resume. Damaged logs are skipped."""
        assert self.board is not None
        for kind in ("machine", "metrics", *ALERTS):
            with suppress(ValueError, KeyError, TypeError, OSError):
                for record in read_jsonl(self.folder / f"{kind}.jsonl"):
                    if kind in ALERTS:
                        self.board.alert(record["level"], record["message"], record.get(self.budget.counter))
                    else:
                        self.board.write(kind, record)

    def _print_rows(self, lines: list[str]) -> None:
        for line in lines:
            (self.say if self.board is None else self.note)(line)

    def _report_crash(self, record: Mapping[str, Any]) -> None:
        """Report the first crash of an env. Later ones are only counted in machine.jsonl."""
        if record.get("env/crashes", 0) and not self.has_reported_crash:
            self.has_reported_crash = True
            self.say("An env crashed and was restarted. machine.jsonl counts further crashes (env/crashes).")
