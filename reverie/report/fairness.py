"""What makes a comparison unfair or weaker than it looks, as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reverie.core.wording import count
from reverie.report.formatting import whole
from reverie.report.groups import Comparison, Group

SLACK = 0.02
"""Budgets are rounded up to whole cycles, so they may differ by this fraction."""


def warnings(comparison: Comparison, env: str) -> list[str]:
    """Sentences about the groups of an env. Empty if nothing is wrong."""
    groups = comparison.envs[env]
    found = [_budgets(groups), _episodes(groups), _unfinished(groups), _repeated_seeds(groups), _commits(groups)]
    return [text for text in (*found, _machines(groups) if comparison.by == "wall" else "") if text]


def _budgets(groups: Sequence[Group]) -> str:
    done = [[run.done for run in group.runs] for group in groups]
    everything = [amount for amounts in done for amount in amounts]
    if not everything or max(everything) - min(everything) <= SLACK * max(everything):
        return ""
    unit = groups[0].runs[0].unit
    parts = [f"{group.label} {_range(amounts)}" for group, amounts in zip(groups, done, strict=True)]
    return (
        f"Unequal budgets: {'; '.join(parts)} {unit}. Final scores after different amounts of training do not compare."
    )


def _range(amounts: Sequence[int]) -> str:
    low, high = min(amounts), max(amounts)
    return whole(high) if high - low <= SLACK * high else f"{whole(low)} to {whole(high)}"


def _episodes(groups: Sequence[Group]) -> str:
    numbers = {run.evaluations.last.episodes for group in groups for run in group.runs if run.evaluations.last}
    known = sorted(number for number in numbers if number is not None)
    if len(known) < 2:
        return ""
    return f"Final evaluations have between {known[0]} and {known[-1]} episodes, so some scores are noisier."


def _unfinished(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs if not run.has_final]
    return f"{count(len(runs), 'run')} without a final score count with their last evaluation, if any." if runs else ""


def _repeated_seeds(groups: Sequence[Group]) -> str:
    repeated = list(_repeats(groups))
    return f"Not independent: {'; '.join(repeated)}." if repeated else ""


def _repeats(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        seeds = Counter(run.seed for run in group.runs)
        for seed, number in seeds.items():
            if number > 1:
                yield f"{group.label} has seed {seed} {number} times"


def _commits(groups: Sequence[Group]) -> str:
    found = {_commit(run.manifest.get("git")) for group in groups for run in group.runs} - {""}
    return f"The runs come from {len(found)} commits of the code." if len(found) > 1 else ""


def _commit(git: object) -> str:
    return str(git.get("commit") or "")[:40] if isinstance(git, dict) else ""


def _machines(groups: Sequence[Group]) -> str:
    machines = {str(run.manifest.get("machine")) for group in groups for run in group.runs}
    return "The runs come from different machines, so their times do not compare." if len(machines) > 1 else ""
