"""Runs folded into groups by columns: how many, the interquartile mean of their final scores, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reverie.lab.columns import MISSING, show, show_score
from reverie.report.seed_statistics import aggregate, aggregate_interval
from reverie.store.run_summary import RunSummary

HEAD = ("runs", "IQM", "95 % interval", "best")


@dataclass(frozen=True)
class SeedGroup:
    """The runs with the same text in all columns. Unscored runs count only in ``runs``."""

    keys: tuple[str, ...]
    runs: tuple[RunSummary, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        return tuple(run.final_score for run in self.runs if run.final_score is not None)

    @property
    def iqm(self) -> float | None:
        return aggregate([np.array(self.scores)]) if self.scores else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """None for a single run, which says nothing about others."""
        return aggregate_interval([np.array(self.scores)]) if len(self.scores) > 1 else None

    @property
    def best(self) -> float | None:
        return max((run.best_score for run in self.runs if run.best_score is not None), default=None)

    def texts(self) -> list[str]:
        """The cells below ``HEAD``."""
        amount = str(len(self.runs)) + (f" ({len(self.scores)} scored)" if len(self.scores) < len(self.runs) else "")
        middle, interval, best = self.iqm, self.interval, self.best
        spread = " to ".join(map(show_score, interval)) if interval else "one run" if self.scores else MISSING
        return [amount, MISSING if middle is None else show_score(middle), spread,
                MISSING if best is None else show_score(best)]  # fmt: skip

    def to_json(self, columns: Sequence[str]) -> dict[str, Any]:
        return {
            **dict(zip(columns, self.keys, strict=True)), "runs": len(self.runs), "scored": len(self.scores),
            "iqm": self.iqm, "interval": self.interval, "best": self.best, "names": [run.name for run in self.runs],
        }  # fmt: skip


def fold(runs: Sequence[RunSummary], columns: Sequence[str]) -> list[SeedGroup]:
    """The groups by their first column, within it the one with the highest score first."""
    folded: dict[tuple[str, ...], list[RunSummary]] = {}
    for run in runs:
        folded.setdefault(tuple(show(run, column) for column in columns), []).append(run)
    groups = [SeedGroup(keys, tuple(members)) for keys, members in folded.items()]
    scores = {group.keys: group.iqm for group in groups}
    return sorted(groups, key=lambda group: (group.keys[:1], -(scores[group.keys] or -np.inf), group.keys))
