"""Trains more seeds until every pair of groups is decided, or the groups have as many seeds as allowed.

Each round trains the number of seeds that the comparison itself asks for. The levels of :mod:`reverie.report.stopping`
correct for the repeated looks. What was decided once stays decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.types import Array
from reverie.core.wording import count
from reverie.lab.compare import Compared
from reverie.report.groups import Group
from reverie.report.stopping import UNTESTED, seeds_needed
from reverie.report.verdicts import pairs

GROWTH = 1.5
"""Factor on the number of seeds while no difference is in sight."""
Read = Callable[[Sequence[Path]], Compared]
Train = Callable[[Path, list[int]], list[Path]]
"""Trains the seeds of an experiment, given by one of its runs. Returns the folders of the new runs."""


@dataclass(frozen=True)
class Order:
    """Seeds to train for a group."""

    group: Group
    seeds: list[int]

    def __str__(self) -> str:
        return f"{self.group.label} on {self.group.env}: {count(len(self.seeds), 'more seed')}"


def run_until_decided(
    paths: Sequence[Path], most: int, read: Read, train: Train, say: Callable[[str], None]
) -> Compared:
    """Compare, train what is needed, and compare again. ``read`` compares the runs in these folders."""
    known = list(paths)
    compared = read(known)
    _check_comparable(compared)
    while orders := next_orders(compared, most):
        before = len(known)
        for order in orders:
            say(f"{order} ({', '.join(map(str, order.seeds))})")
            known += train(_template(order.group), order.seeds)
        decided = compared.comparison.decided
        compared = read(known)
        compared.comparison.decided = {**compared.comparison.decided, **decided}
        if len(known) == before:
            raise TrainingError("No new run finished, so nothing can be decided.", "See run.log of the newest runs.")
    return compared


def next_orders(compared: Compared, most: int) -> list[Order]:
    """The seeds that the undecided pairs need. Empty if all are decided or have as many seeds as allowed."""
    targets: dict[str, tuple[Group, int]] = {}
    for env, groups in compared.envs.items():
        verdict_of = {frozenset((each.better, each.worse)): each for each in compared.verdicts(env)}
        for pair in pairs(groups):
            verdict = verdict_of[frozenset(group.label for group in pair)]
            if verdict.is_decided:
                compared.comparison.decided[env, verdict.better, verdict.worse] = verdict
                continue
            target = next_number(pair[0].scores, pair[1].scores, most)
            for group in pair:
                key = f"{env} {group.label}"
                targets[key] = (group, max(target, targets.get(key, (group, 0))[1]))
    orders = [Order(group, _new_seeds(group, target)) for group, target in targets.values()]
    return [order for order in orders if order.seeds]


def next_number(left: Array, right: Array, most: int) -> int:
    """How many runs both groups should have at the next look, from their scores so far."""
    needed = seeds_needed(left, right)
    if needed is None:
        needed = max(UNTESTED, math.ceil(GROWTH * min(len(left), len(right))))
    return min(most, needed)


def _new_seeds(group: Group, target: int) -> list[int]:
    """Seeds that the group does not have yet."""
    used = {int(run.seed) for run in group.runs if run.seed.isdigit()}
    missing = max(0, target - len(group.scores))
    return [seed for seed in range(1, target + len(used) + 2) if seed not in used][:missing]


def _template(group: Group) -> Path:
    """A run of the group to repeat, one that has finished if possible."""
    return next((run.path for run in group.runs if run.has_final), group.runs[0].path)


def _check_comparable(compared: Compared) -> None:
    if all(len(groups) < 2 for groups in compared.envs.values()):
        fix = "Name runs of two experiments on the same env, one of each is enough."
        raise ConfigError("There is nothing to decide: no env has runs of two experiments.", fix)
