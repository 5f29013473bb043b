"""The tables of a comparison as rows of text, for both forms of a report."""

from __future__ import annotations

from collections.abc import Sequence

from reverie.report import seed_statistics
from reverie.report.formatting import MISSING, group_title, score
from reverie.report.groups import Comparison, Group, Improvement

SCORE_HEAD = ("group", "runs", "final score (IQM)", "95 % interval", "best")
NORMALISED_HEAD = ("group", "normalised score (IQM)", "95 % interval")


def score_rows(groups: Sequence[Group]) -> list[list[str]]:
    """Group, runs, interquartile mean of the final scores, its interval, mean of the best scores."""
    return [
        [group.label, _run_count(group), *_with_interval([group.scores]),
         score(float(group.best_scores.mean())) if len(group.best_scores) else MISSING]
        for group in groups
    ]  # fmt: skip


def titled(rows: Sequence[list[str]]) -> list[list[str]]:
    """The rows with the names of algorithms as papers write them."""
    return [[group_title(row[0]), *row[1:]] for row in rows]


def normalised_rows(groups: Sequence[Group]) -> list[list[str]]:
    """Final scores with 0 for random play and 1 for the env's reference. Empty if the env has no references."""
    found = [(group.label, group.normalised_scores) for group in groups]
    return [[label, *_with_interval([scores])] for label, scores in found if scores is not None and len(scores)]


def shared_scale(comparison: Comparison) -> str:
    """How scores of several envs are made comparable."""
    if comparison.has_references:
        return "In each env, 0 is random play and 1 the reference of the env."
    return "In each env, scores are scaled from its lowest run (0) to its highest (1)."


def shared_rows(comparison: Comparison) -> list[list[str]]:
    """Label, interquartile mean of scaled scores over all envs, its interval."""
    shared = comparison.shared()
    if len(shared) < 2:
        return []
    rows = [[label, *_with_interval(strata)] for label, strata in shared.items()]
    return sorted(rows, key=lambda row: -seed_statistics.aggregate(shared[row[0]]))


def improvement_rows(improvements: Sequence[Improvement]) -> list[list[str]]:
    return [
        [entry.better, entry.worse, f"{entry.probability:.2f}", f"{entry.low:.2f} to {entry.high:.2f}"]
        for entry in improvements
    ]


def _run_count(group: Group) -> str:
    total, done = len(group.runs), sum(run.has_final for run in group.runs)
    return f"{total}" if done == total else f"{total} ({done} finished)"


def _with_interval(strata: seed_statistics.Strata) -> list[str]:
    num_scores = sum(len(scores) for scores in strata)
    if not num_scores:
        return [MISSING, MISSING]
    middle = score(seed_statistics.aggregate(strata))
    if num_scores == len(strata):
        return [middle, "one run"]
    low, high = seed_statistics.aggregate_interval(strata)
    return [middle, f"{score(low)} to {score(high)}"]
