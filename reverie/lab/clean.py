"""Which runs ``reverie runs clean`` cleans, what it removes from them, and how much space that frees.

Configs, metrics, scores and labels of a run always stay. A run in use is left alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reverie.core.errors import RunError, nearest
from reverie.store.lock import is_in_use
from reverie.store.run_summary import RunSummary
from reverie.store.trash import (
    TrashEntry,
    existing_parts,
    freed_bytes,
    is_cleaned,
    move_to_trash,
    read_trash,
    remove,
    restore,
)


@dataclass(frozen=True)
class Rules:
    """What to keep and what to choose. Times are in seconds."""

    keep_best: int = 0
    """This many runs with the highest best score of each env are kept."""
    keep_recent: float | None = None
    """Runs that changed in this time are kept."""
    older_than: float | None = None
    """Only runs without a change for this long are cleaned."""
    failed: bool = False
    """Only failed runs are cleaned."""
    keep_policies: bool = False


@dataclass(frozen=True)
class Candidate:
    """A run that will be cleaned."""

    run: RunSummary
    parts: tuple[Path, ...]
    bytes: int


@dataclass
class Plan:
    """What will be removed, and how many runs are kept for which reason."""

    candidates: list[Candidate] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    """What all of it frees. Runs may share files, which are freed only if all of them go."""


@dataclass
class Cleaned:
    """What was removed, and why other runs could not be cleaned."""

    runs: list[str] = field(default_factory=list)
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


def plan_cleaning(runs: Sequence[RunSummary], rules: Rules, now: float | None = None) -> Plan:
    """What the rules remove from these runs."""
    now, plan, best = now if now is not None else time.time(), Plan(), _best_of_each_env(runs, rules.keep_best)
    for run in runs:
        reason = _reason_to_keep(run, rules, now - run.changed, best)
        parts = existing_parts(run.path, ("policies",) if rules.keep_policies else ())
        if reason:
            plan.kept[reason] += 1
        elif parts:
            plan.candidates.append(Candidate(run, tuple(parts), freed_bytes(parts)))
        else:
            plan.kept["with nothing to remove"] += 1
    plan.bytes = freed_bytes(part for candidate in plan.candidates for part in candidate.parts)
    return plan


def clean(plan: Plan, for_good: bool) -> Cleaned:
    """Move what is planned into the trash, or delete it ``for_good``."""
    done = Cleaned()
    for candidate in plan.candidates:
        try:
            (remove if for_good else move_to_trash)(candidate.run.path, candidate.parts)
        except RunError as error:  # it is in use since the plan was made, or not writable
            done.problems.append(str(error))
            continue
        done.runs.append(candidate.run.name)
    done.bytes = plan.bytes if not done.problems else sum(c.bytes for c in plan.candidates if c.run.name in done.runs)
    return done


def restore_runs(names: Iterable[str], runs_dir: Path) -> list[str]:
    """Restore the named runs, or all without a name, from the trash. RunError if none is there."""
    entries, wanted = read_trash(runs_dir), list(names)
    if not entries:
        raise RunError(f"The trash of '{runs_dir}' is empty.")
    known = {entry.run.name for entry in entries}
    for name in wanted:
        if not any(_is_named(entry, name) for entry in entries):
            raise RunError(f"The trash of '{runs_dir}' holds nothing of '{name}'.", nearest(name, known))
    chosen = [entry for entry in entries if not wanted or any(_is_named(entry, name) for name in wanted)]
    for entry in chosen:
        restore(entry)
    return list(dict.fromkeys(entry.run.name for entry in chosen))


def _is_named(entry: TrashEntry, name: str) -> bool:
    return entry.run.name == name or entry.run.name.startswith(name)


def _best_of_each_env(runs: Sequence[RunSummary], count: int) -> set[Path]:
    """The runs with the highest scores. Scores of different envs cannot be compared."""
    scored = sorted((run for run in runs if run.best_score is not None), key=lambda run: -(run.best_score or 0.0))
    seen: Counter[str] = Counter()
    best = set()
    for run in scored:
        seen[run.env] += 1
        if seen[run.env] <= count:
            best.add(run.path)
    return best


def _reason_to_keep(run: RunSummary, rules: Rules, age: float, best: set[Path]) -> str:
    """Why a run is kept. Empty if it is not."""
    if is_in_use(run.path):
        return "in use"
    if run.path in best:
        return f"among the best {rules.keep_best} of their env"
    if rules.keep_recent is not None and age < rules.keep_recent:
        return "changed recently"
    if rules.older_than is not None and age < rules.older_than:
        return "not old enough"
    if rules.failed and run.status != "failed":
        return "not failed"
    return "cleaned before" if is_cleaned(run.path) and not existing_parts(run.path) else ""
