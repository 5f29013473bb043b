"""The tables that ``reverie export`` writes: groups of runs, runs, learning curves and metrics.

A group holds the seeds of one experiment. Numbers stay numbers here; the formats round them, or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reverie.core.types import Array
from reverie.report import seed_statistics
from reverie.report.groups import Comparison, Group, compare, different_settings
from reverie.report.run_data import RunData
from reverie.report.safe_files import Lines
from reverie.report.settings import show_value

STATISTICS = {"iqm": "interquartile mean", "mean": "mean"}


@dataclass
class Table:
    """Named columns. None stands for a missing value. ``notes`` says what was left out while reading."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """A statistic over the final scores of a group. A single run has no interval."""

    runs: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


def summarise(scores: Array, statistic: str) -> Summary:
    """The statistic over seeds with its 95 % bootstrap interval."""
    if not len(scores):
        return Summary(0)
    if statistic == "mean":
        mean, low, high = (float(values[0]) for values in seed_statistics.mean_band(scores[:, None]))
    else:
        mean, (low, high) = seed_statistics.aggregate([scores]), seed_statistics.aggregate_interval([scores])
    return Summary(1, mean) if len(scores) == 1 else Summary(len(scores), mean, low, high)


def group_table(runs: Sequence[RunData], statistic: str) -> Table:
    """One row per group of runs that differ only in their seed."""
    columns = ("env", "group", "runs", statistic, "low", "high", "best_mean")
    rows = []
    for group in compare(runs).groups:
        found, best = summarise(group.scores, statistic), group.best_scores
        best_mean = float(best.mean()) if len(best) else None
        rows.append((group.env, group.label, len(group.runs), found.value, found.low, found.high, best_mean))
    return Table(columns, rows)


def run_table(runs: Sequence[RunData], statistic: str) -> Table:
    """One row per run, with the settings in which the groups differ."""
    groups = compare(runs).groups
    differing = different_settings(groups)
    columns = ("run", "env", "group", "algorithm", "seed", "state", "env_steps", "final_score", "best_score")
    rows = [
        (run.name, run.env, group.label, run.algorithm, run.seed, run.state, run.done, run.final_score, run.best_score,
         *(show_value(values[index]) for values in differing.values()))
        for index, group in enumerate(groups) for run in group.runs
    ]  # fmt: skip
    return Table((*columns, *differing), rows)


def curve_table(runs: Sequence[RunData], statistic: str) -> Table:
    """One row per evaluation of every run."""
    columns = ("run", "env", "group", "seed", "axis", "position", "return_mean", "return_low", "return_high")
    rows = [
        (run.name, run.env, group.label, run.seed, run.axis, evaluation.x, evaluation.mean, evaluation.low,
         evaluation.high)
        for group, run in _by_group(compare(runs)) for evaluation in run.evaluations.rows
    ]  # fmt: skip
    return Table(columns, rows)


def metric_table(runs: Sequence[RunData], statistic: str) -> Table:
    """One row per line of every metrics.jsonl, with a column for each metric of any run."""
    notes: list[str] = []
    records = [(run.name, record) for run in runs for record in Lines(run.path, "metrics.jsonl", notes)]
    names = tuple(dict.fromkeys(name for _, record in records for name in record))
    rows = [(run, *(record.get(name) for name in names)) for run, record in records]
    return Table(("run", *names), rows, notes)


def _by_group(comparison: Comparison) -> list[tuple[Group, RunData]]:
    return [(group, run) for group in comparison.groups for run in group.runs]


TABLES: dict[str, Callable[[Sequence[RunData], str], Table]] = {
    "groups": group_table, "runs": run_table, "curves": curve_table, "metrics": metric_table,
}  # fmt: skip
