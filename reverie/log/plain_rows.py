"""Rows of the most important metrics, for run.log and for screens without a live table."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import filter as matching
from functools import lru_cache
from typing import Any

from reverie.core.counters import Budget
from reverie.log.metric_styles import Rules

ROWS = 20
LENGTH = ("length", 9, "collect/length", "{:.1f}")
COLUMNS = {
    # title, width, key, format (None: more digits for small returns)
    "env_steps": (
        ("env steps", 12, "env_steps", "{:,.0f}"),
        ("updates", 12, "updates", "{:,.0f}"),
        ("return", 10, "collect/return", None),
        ("eval return", 12, "evaluate/return_mean", None),
        LENGTH,
        ("loss", 10, "loss", "{:.4f}"),
        ("steps/s", 9, "speed/env_steps_per_second", "{:,.0f}"),
    ),
    "updates": (
        ("updates", 12, "updates", "{:,.0f}"),
        ("eval return", 12, "evaluate/return_mean", None),
        ("loss", 10, "loss", "{:.4f}"),
        ("updates/s", 11, "speed/updates_per_second", "{:,.0f}"),
    ),
}
"""By the counter of the run's budget."""
FRAMES = ("frames", 12, "frames", "{:,.0f}")
"""Shown next to env steps if actions are repeated. It replaces the length, to stay within 80 columns."""
LOSSES = "update*/*loss*"
"""Candidates for the column ``loss``, which shows the one with the highest importance."""
USUAL_LOSS = "update/loss"


class PlainRows:
    """Twenty rows per run, and one after each evaluation."""

    def __init__(self, budget: Budget, rules: Rules, action_repeat: int = 1) -> None:
        self.counter = budget.counter
        self.columns = COLUMNS[budget.counter]
        if self.counter == "env_steps" and action_repeat > 1:
            self.columns = tuple(
                column for column in (*self.columns[:1], FRAMES, *self.columns[1:]) if column != LENGTH
            )
        self.total = budget.total
        self.every = max(1, budget.total // ROWS)
        self.importance = lru_cache(10_000)(lambda name: rules.style(name).importance)
        self.values: dict[str, Any] = {}
        self.rows = 0
        self.held: list[str] = []
        """The last row of the run. It is held back, because the final evaluation replaces it."""
        self.held_at = -1
        self.has_header = False
        self.named_loss = self.loss = USUAL_LOSS

    def write(self, kind: str, record: Mapping[str, Any]) -> list[str]:
        """The lines to print after a record. Mostly none."""
        self.values.update({key: record[key] for _, _, key, _ in self.columns if key in record})
        if losses := matching(record, LOSSES):
            self.loss = max(losses, key=self.importance)
            self.values["loss"] = record[self.loss]
        due = record.get(self.counter, 0) // self.every
        if "evaluate/return_mean" not in record and not (kind == "machine" and due > self.rows):
            return []
        self.rows = due
        header = [] if self.has_header else ["".join(title.rjust(width) for title, width, _, _ in self.columns)]
        self.has_header = True
        position, lines = record.get(self.counter, 0), self.release()
        if position == self.held_at:
            lines = lines[:-1]
        lines += [*header, *self._name_loss(), self._row()]
        if kind == "machine" and position >= self.total > 0:
            self.held, self.held_at = lines, position
            return []
        return lines

    def release(self) -> list[str]:
        """The row that was held back."""
        lines, self.held = self.held, []
        return lines

    def _name_loss(self) -> list[str]:
        """A line that names the loss in the column, whenever that changes."""
        if self.loss == self.named_loss:
            return []
        self.named_loss = self.loss
        return [f"loss: {self.loss}"]

    def _row(self) -> str:
        return "".join(
            (_show(self.values[key], form) if key in self.values else "-").rjust(width)
            for _, width, key, form in self.columns
        )


def _show(value: float, form: str | None) -> str:
    return (form or ("{:.2f}" if 0 < abs(value) < 10 else "{:.1f}")).format(value)
