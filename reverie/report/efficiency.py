"""Sample efficiency: how many env steps (or updates, or minutes) runs need to reach a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reverie.core.types import Array
from reverie.report.formatting import score, short_number
from reverie.report.groups import Comparison, Group
from reverie.report.seed_statistics import aggregate

UNITS = {"env_steps": "env steps", "updates": "updates", "wall": "minutes of training"}
HEAD = ("group", "reached", "median", "range")


@dataclass(frozen=True)
class Efficiency:
    """Where the groups of an env first reach a score."""

    threshold: float
    reason: str
    unit: str
    rows: list[list[str]]

    @property
    def title(self) -> str:
        return f"{self.unit[:1].upper()}{self.unit[1:]} to a return of {score(self.threshold)} ({self.reason})"


def efficiency(comparison: Comparison, env: str) -> Efficiency | None:
    """None if no run has been evaluated."""
    groups = [group for group in comparison.envs[env] if any(run.evaluations.rows for run in group.runs)]
    if not groups:
        return None
    threshold, reason = _choose(groups, comparison.threshold)
    rows = [_row(group, threshold) for group in groups]
    return Efficiency(threshold, reason, UNITS[comparison.by], rows)


def _choose(groups: Sequence[Group], given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "as asked"
    goals = {run.solved_at for group in groups for run in group.runs} - {None}
    if len(goals) == 1:
        return float(goals.pop() or 0.0), "solved"
    return min(aggregate([group.scores]) for group in groups), "the final score of the lowest group"


def _row(group: Group, threshold: float) -> list[str]:
    """A run that never reaches the score counts as later than all others, so a median may be "never"."""
    positions = group.positions_of(threshold)
    reached = positions[np.isfinite(positions)]
    middle = _median(positions)
    spread = f"{short_number(reached.min())} to {short_number(reached.max())}" if len(reached) else "–"
    amount = f"{len(reached)} of {len(positions)}"
    return [group.label, amount, short_number(middle) if np.isfinite(middle) else "never", spread]


def _median(positions: Array) -> float:
    """The median, or the upper of the two middle values if one of them is infinite."""
    ordered = np.sort(positions)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(high if np.isinf(high) else (low + high) / 2)
