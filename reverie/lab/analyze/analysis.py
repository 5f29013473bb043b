"""Analyses groups of runs: what happened, the evidence, the likeliest causes, and what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.core.wording import count
from reverie.lab.analyze.causes import Cause, likely_causes, named, train
from reverie.lab.analyze.shape import FEWEST_POINTS, Shape, read_shape
from reverie.report import seed_statistics
from reverie.report.formatting import number
from reverie.report.groups import Group, compare
from reverie.report.run_data import RunData

MOST_CAUSES = 3
CLEAR = 0.7
"""A cause at least this likely decides what to type next, even if the curve says nothing."""
ENOUGH_SEEDS = 5
UNSTABLE = 0.5
"""Seeds differ by at least this fraction of what the best one gained."""
STATES = {"running": "is still running", "failed": "failed", "stopped": "was stopped early"}
EPISODES, MERGED_EPISODES = "training episodes", 5
"""Single episodes are too noisy to be points of a curve."""
HAPPENED = {
    "unknown": "There is too little data to say.",
    "nothing learnt": "It did not learn: the returns never rose above their noise.",
    "learnt": "It learnt.",
    "still improving": "It learnt, and was still improving at the end.",
    "got worse": "It got worse than it was at the start.",
    "plateau": "It learnt something, then stayed below the goal.",
    "collapse": "It learnt, then collapsed: most of what it had gained was lost again.",
}


@dataclass(frozen=True)
class Analysis:
    """What is known about one group of runs."""

    env: str
    group: str
    runs: list[str]
    happened: str
    kind: str
    """One of the kinds of a shape, or ``unstable seeds``, or ``failed``."""
    evidence: list[str]
    causes: list[Cause]
    next: str
    doubts: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyze(runs: Sequence[RunData]) -> list[Analysis]:
    """One analysis per group of runs that differ only in their seed."""
    return [_analyze_group(group) for group in compare(runs).groups]


def _analyze_group(group: Group) -> Analysis:
    shapes = {run.name: _shape(run) for run in group.runs}
    kind = _kind(group, shapes)
    run = _typical(group, shapes, kind)
    shape = shapes[run.name]
    causes = [] if kind == "learnt" else likely_causes(run, shape, len(group.runs))[:MOST_CAUSES]
    return Analysis(
        group.env, group.label, [each.name for each in group.runs], _happened(group, shapes, kind), kind,
        _evidence(group, run, shape), causes, _next(run, kind, causes, len(group.runs)), _doubts(group, shape),
    )  # fmt: skip


def _shape(run: RunData) -> Shape:
    x, y, source = curve_of(run)
    merge = MERGED_EPISODES if source == EPISODES else 1
    return read_shape(x, y, run.solved_at, merge, run.random_return) if len(y) else Shape("unknown", 0)


def curve_of(run: RunData) -> tuple[Array, Array, str]:
    """The curve that a run is judged by, and its name: evaluations, or the training episodes if those are few."""
    rows = sorted(run.evaluations.rows, key=lambda row: row.x)
    returns = run.episodes.returns.curve()
    if len(rows) >= FEWEST_POINTS or len(returns) < FEWEST_POINTS:
        return np.array([row.x for row in rows]), np.array([row.mean for row in rows]), "evaluations"
    return returns.x, returns.mean, EPISODES


def _kind(group: Group, shapes: dict[str, Shape]) -> str:
    if all(run.state == "failed" for run in group.runs):
        return "failed"
    kinds = Counter(shape.kind for shape in shapes.values())
    ends = [shape.end for shape in shapes.values() if shape.points]
    gained = max((shape.best - shape.start for shape in shapes.values() if shape.points), default=0.0)
    if len(kinds) > 1 and len(ends) > 1 and max(ends) - min(ends) > UNSTABLE * gained > 0:
        return "unstable seeds"
    return kinds.most_common(1)[0][0]


def _typical(group: Group, shapes: dict[str, Shape], kind: str) -> RunData:
    """The run that causes are looked for in: the worst seed if seeds differ, else one with the group's shape."""
    fitting = [run for run in group.runs if shapes[run.name].kind == kind] or group.runs
    return min(fitting, key=lambda run: shapes[run.name].end if shapes[run.name].points else np.inf)


def _happened(group: Group, shapes: dict[str, Shape], kind: str) -> str:
    if kind == "failed":
        return "It failed before its end; run.log has the error."
    if kind == "unstable seeds":
        kinds = Counter(shape.kind for shape in shapes.values()).most_common()
        return "Seeds differ: " + ", ".join(f"{amount} {name}" for name, amount in kinds) + "."
    goal = group.runs[0].solved_at
    solved = [shape.end >= goal for shape in shapes.values() if shape.points] if goal is not None else []
    if kind == "learnt" and solved and all(solved):
        return "It learnt the task: the goal is reached."
    return HAPPENED[kind]


def _evidence(group: Group, run: RunData, shape: Shape) -> list[str]:
    _, _, source = curve_of(run)
    lines = []
    if shape.points:
        levels = f"from {number(shape.start)} to {number(shape.end)}"
        best = f"best {number(shape.best)} at {run.unit.removesuffix('s')} {shape.best_at:,.0f}"
        error = f", each about ± {number(2 * shape.error)}" if shape.kind != "unknown" else ""
        lines.append(f"Returns of {count(shape.points, 'point')} of {source}: {levels}, {best}{error}.")
    if run.solved_at is not None:
        random = "" if run.random_return is None else f"; random play earns {number(run.random_return)}"
        lines.append(f"The goal of {run.env} is {number(run.solved_at)}{random}.")
    scores = group.scores
    if len(scores) > 1:
        low, high = seed_statistics.aggregate_interval([scores])
        interval = f"95 % interval {number(low)} to {number(high)}"
        lines.append(
            f"Final scores of {len(scores)} seeds: {number(scores.min())} to {number(scores.max())}; {interval}."
        )
    if run.num_alerts:
        rules = ", ".join(dict.fromkeys(alert.rule for alert in run.alerts))
        lines.append(f"The monitor raised {count(run.num_alerts, 'alert')}: {rules}.")
    return lines


def _next(run: RunData, kind: str, causes: Sequence[Cause], seeds: int) -> str:
    if not run.settings.tree:  # config.yaml is missing or damaged
        return f"reverie runs show {named(run)}"
    if kind == "failed":
        return f"reverie resume {named(run)}"
    if kind == "unknown" and not (causes and causes[0].likelihood >= CLEAR):
        return f"reverie resume {named(run)} --steps {max(2 * run.done, 1000)}"
    if kind == "learnt" and seeds < ENOUGH_SEEDS:
        return train(run, "--seed 1,2,3,4,5")
    return causes[0].next if causes else f"reverie export {named(run)} --format policy"


def _doubts(group: Group, shape: Shape) -> list[str]:
    """Why all this may be wrong."""
    seeds, doubts = len(group.runs), []
    if seeds < ENOUGH_SEEDS:
        doubts.append(f"{count(seeds, 'seed')} may be chance; {ENOUGH_SEEDS} or more are usual.")
    states = Counter(run.state for run in group.runs if run.state != "finished")
    doubts += [
        f"{count(amount, 'run')} of {seeds} {STATES.get(state, f'ended as {state}')}."
        for state, amount in states.items()
    ]
    if 0 < shape.points < 2 * FEWEST_POINTS:
        doubts.append(f"The curve has only {count(shape.points, 'point')}.")
    return doubts
