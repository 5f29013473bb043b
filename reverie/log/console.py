"""What the person at the keyboard sees while a run trains; the same lines go to run.log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console as Screen

ROWS = 20
COLUMNS = (
    # title, width, key, format
    ("env steps", 12, "env_steps", "{:,.0f}"),
    ("updates", 12, "updates", "{:,.0f}"),
    ("return", 10, "collect/return", "{:.1f}"),
    ("evaluate", 10, "evaluate/return_mean", "{:.1f}"),
    ("length", 9, "collect/length", "{:.1f}"),
    ("loss", 10, "update/loss", "{:.4f}"),
    ("steps/s", 9, "speed/env_steps_per_second", "{:,.0f}"),
)


class Console:
    """A sink that prints a row of the most important numbers twenty times per run and after each evaluation."""

    def __init__(self, folder: Path, horizon_steps: int, quiet: bool = False) -> None:
        self.screen = None if quiet else Screen(highlight=False, soft_wrap=True, stderr=True)
        self.log: TextIO = (folder / "run.log").open("a", encoding="utf-8")
        self.every = max(1, horizon_steps // ROWS)
        self.values: dict[str, Any] = {}
        self.rows = 0
        self.has_header = False
        self.has_told_crash = False

    def say(self, text: str) -> None:
        """A line for the screen and the log."""
        self.note(text)
        if self.screen is not None:
            self.screen.print(text, markup=False)

    def note(self, text: str) -> None:
        """A line for the log alone."""
        self.log.write(text + "\n")
        self.log.flush()

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind == "scores":
            return
        if kind in ("alerts", "machine_alerts"):
            self.say(f"{record['level']} at env step {record['env_steps']:,}: {record['message']}")
            return
        self.values.update(record)
        self._tell_crash(record)
        due = record["env_steps"] // self.every
        if "evaluate/return_mean" in record or (kind == "machine" and due > self.rows):
            self.rows = due
            self._print_row()

    def close(self) -> None:
        self.log.close()

    def _tell_crash(self, record: Mapping[str, Any]) -> None:
        """Once: from then on the numbers in machine.jsonl tell how it goes on."""
        if record.get("env/crashes", 0) and not self.has_told_crash:
            self.has_told_crash = True
            self.say("An env crashed and was started again; machine.jsonl counts how often (env/crashes).")

    def _print_row(self) -> None:
        if not self.has_header:
            self.say("".join(title.rjust(width) for title, width, _, _ in COLUMNS))
            self.has_header = True
        cells = [
            (form.format(self.values[key]) if key in self.values else "-").rjust(width)
            for _, width, key, form in COLUMNS
        ]
        self.say("".join(cells))
