"""Groups runs that differ only in their seed, and compares the groups of each env."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.report import seed_statistics
from reverie.report.run_data import RunData
from reverie.report.settings import show_value

NOT_A_DIFFERENCE = (
    "seed", "log.", "checkpoint.", "schema_version", "backend.engine", "backend.matmul", "backend.numpy_matmul",
    "env.spec.random", "env.spec.reference",
)  # fmt: skip
"""Settings that do not make runs different experiments."""
NOT_IN_A_LABEL = ("seed", "env.id", "algorithm.kind")
LABEL_ORDER = ("algorithm.", "env.", "buffers.", "phases.")
"""Sections of settings, the most telling first: a label has room for a few."""
TYPED = ("command line", "Python", "preset ")
GRID_POINTS = 200
MOST_IN_A_LABEL = 3


@dataclass
class Group:
    """The seeds of one experiment."""

    runs: list[RunData]
    label: str = ""
    by: str = "env_steps"
    """What curves are aligned by: env_steps, updates or wall."""

    @property
    def env(self) -> str:
        return self.runs[0].env

    @property
    def scores(self) -> Array:
        """The final score of every run that has one."""
        return np.array([run.final_score for run in self.runs if run.final_score is not None])

    @property
    def best_scores(self) -> Array:
        return np.array([run.best_score for run in self.runs if run.best_score is not None])

    @property
    def normalised_scores(self) -> Array | None:
        """The final scores with 0 for random play and 1 for the env's reference. None if the env has no references."""
        ranges = {run.reference_range for run in self.runs if run.reference_range}
        if len(ranges) != 1:
            return None
        low, high = ranges.pop()
        scores: Array = (self.scores - low) / (high - low)
        return scores

    def positions_of(self, threshold: float) -> Array:
        """Where each run that was evaluated first reached a score. Infinity for runs that never did."""
        lines = [_line(run, self.by) for run in self.runs if run.evaluations.rows]
        return np.array([next((at for at, mean in zip(x, y, strict=True) if mean >= threshold), np.inf)
                         for x, y in lines])  # fmt: skip

    def curve(self) -> BandCurve | None:
        """The mean evaluation over seeds, in the range where all of them have data."""
        lines = [_line(run, self.by) for run in self.runs if run.evaluations.rows]
        if not lines:
            return None
        start, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
        inside = np.unique(np.concatenate([x for x, _ in lines]))
        x = inside[(inside >= start) & (inside <= end)]
        if len(x) > GRID_POINTS:
            x = np.linspace(start, end, GRID_POINTS)
        if not len(x):
            return None
        return BandCurve(x, *seed_statistics.mean_band(np.stack([np.interp(x, *line) for line in lines])), len(lines))


@dataclass(frozen=True)
class BandCurve:
    """The mean over seeds with its interval."""

    x: Array
    mean: Array
    low: Array
    high: Array
    seeds: int


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of one group scores higher than one of another."""

    better: str
    worse: str
    probability: float
    low: float
    high: float
    tasks: int = 1


@dataclass
class Comparison:
    """Groups by env, and comparisons over all envs."""

    envs: dict[str, list[Group]] = field(default_factory=dict)
    by: str = "env_steps"
    threshold: float | None = None
    """The score whose first position is compared. None: chosen for each env."""
    most_seeds: int | None = None
    """Seeds per group up to which somebody looks again. None: this is the only look."""
    decided: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    """Verdicts of earlier looks by env and labels. They stay."""

    @property
    def groups(self) -> list[Group]:
        return [group for groups in self.envs.values() for group in groups]

    def improvements(self, env: str) -> list[Improvement]:
        """Every pair of an env's groups with several runs, the better one first."""
        groups = [group for group in self.envs[env] if len(group.scores) > 1]
        pairs = [(left, right) for index, left in enumerate(groups) for right in groups[index + 1 :]]
        return [_improve(left.label, [left.scores], right.label, [right.scores]) for left, right in pairs]

    def shared(self) -> dict[str, list[Array]]:
        """Scores by label and env, for labels that every env has.

        They are normalised by the envs' references. If an env has none, each env's scores are scaled from its lowest
        run (0) to its highest (1).
        """
        if len(self.envs) < 2:
            return {}
        scale = _normalise if self.has_references else _scale
        scaled = [scale(groups) for groups in self.envs.values()]
        labels = [label for label in scaled[0] if all(label in scores for scores in scaled)]
        return {label: [scores[label] for scores in scaled] for label in labels}

    @property
    def has_references(self) -> bool:
        """Whether the scores of all groups can be normalised."""
        return all(group.normalised_scores is not None for group in self.groups)

    def shared_improvements(self) -> list[Improvement]:
        """Every pair of labels over all envs, if both have several runs in at least one env."""
        shared = [(label, strata) for label, strata in self.shared().items() if max(map(len, strata)) > 1]
        return [_improve(*left, *right) for index, left in enumerate(shared) for right in shared[index + 1 :]]


def compare(runs: Sequence[RunData], by: str = "env_steps") -> Comparison:
    """Group the runs, give the groups distinct names, and order them by score. ``by`` aligns their curves."""
    by_config: dict[str, Group] = {}
    for run in runs:
        by_config.setdefault(_identity(run), Group([], by=by)).runs.append(run)
    comparison = Comparison(by=by)
    for group in by_config.values():
        comparison.envs.setdefault(group.env, []).append(group)
    typed = [set(_typed(group.runs[0])) for group in comparison.groups]
    shared = set.intersection(*typed) if len(typed) > 1 else set()
    for groups in comparison.envs.values():
        _name(groups, shared)
        groups.sort(key=lambda group: -seed_statistics.aggregate([group.scores]) if len(group.scores) else np.inf)
    return comparison


def different_settings(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Settings in which groups differ: the values of all groups, by key."""
    settings = [_compared(group.runs[0]) for group in groups]
    keys = dict.fromkeys(key for values in settings for key in values)
    rows = {key: [values.get(key, "(absent)") for values in settings] for key in keys}
    return {key: row for key, row in rows.items() if len(set(map(_text, row))) > 1}


def _identity(run: RunData) -> str:
    """A text that is equal for runs of the same experiment."""
    settings = {key: _text(value) for key, value in _compared(run).items()}
    return json.dumps([run.env, run.algorithm, settings], sort_keys=True)


def _text(value: Any) -> str:
    """A text that is equal for equal values. 1 and 1.0 are equal."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True, default=str)


def _compared(run: RunData) -> dict[str, Any]:
    leaves = run.settings.leaves().items()
    return {key: value for key, value in leaves if not key.startswith(NOT_A_DIFFERENCE)}


def _name(groups: list[Group], shared: set[str]) -> None:
    """Name groups by the settings that were typed for some but not all runs, then by settings that differ."""
    for group in groups:
        typed = [word for word in _typed(group.runs[0]) if word not in shared]
        group.label = " ".join([_algorithm_name(group.runs[0]), *_few(typed)])
    for label in {group.label for group in groups}:
        same = [group for group in groups if group.label == label]
        if len(same) > 1:
            _add_differences(same)
    labels = [group.label for group in groups]
    for number, group in enumerate(groups, 1):
        if labels.count(group.label) > 1:  # different values that look equal, such as 1 and "1"
            group.label += f" ({number})"


def _add_differences(groups: list[Group]) -> None:
    """Add the fewest settings that distinguish the groups, then others while there is room."""
    rows = different_settings(groups)
    rest = {key: row for key, row in rows.items() if key != "horizon_steps"}  # usually it follows from the phases
    rows = rest if _num_kinds(rest, [*rest]) == _num_kinds(rows, [*rows]) else rows
    chosen: list[str] = []
    while len(chosen) < len(rows) and _num_kinds(rows, chosen) < len(groups):
        left = [key for key in rows if key not in chosen]
        chosen.append(max(left, key=lambda key: _num_kinds(rows, [*chosen, key])))
    keys = [*chosen, *(key for key in rows if key not in chosen)]
    most = max(MOST_IN_A_LABEL, len(chosen))
    for index, group in enumerate(groups):
        words = [f"{_short(key)}={show_value(rows[key][index])}" for key in keys]
        group.label = " ".join([group.label, *_few(words, most)])


def _num_kinds(rows: dict[str, list[Any]], keys: list[str]) -> int:
    """How many groups these settings distinguish."""
    return len(set(zip(*(map(show_value, rows[key]) for key in keys), strict=True)))


def _algorithm_name(run: RunData) -> str:
    """``ppo``, or the class of an algorithm of the user's own without its module."""
    return run.algorithm.rpartition(".")[2]


def _label_rank(key: str) -> int:
    return next((rank for rank, section in enumerate(LABEL_ORDER) if key.startswith(section)), len(LABEL_ORDER))


def _typed(run: RunData) -> list[str]:
    settings = [s for s in run.settings.values if s.source.startswith(TYPED) and s.key not in NOT_IN_A_LABEL]
    settings.sort(key=lambda setting: _label_rank(setting.key))
    typed = [s.source.removeprefix("preset ") if s.source.startswith("preset ") else
             f"{_short(s.key)}={show_value(s.value)}" for s in settings]  # fmt: skip
    return list(dict.fromkeys(typed))


def _few(words: list[str], most: int = MOST_IN_A_LABEL) -> list[str]:
    return words if len(words) <= most else [*words[:most], f"and {len(words) - most} more"]


def _short(key: str) -> str:
    return key.removeprefix("algorithm.")


def _line(run: RunData, by: str) -> tuple[Array, Array]:
    rows = sorted(run.evaluations.rows, key=lambda row: row.x)
    return run.positions(by), np.array([row.mean for row in rows])


def _scale(groups: Iterable[Group]) -> dict[str, Array]:
    scored = {group.label: group.scores for group in groups if len(group.scores)}
    if not scored:
        return {}
    everything = np.concatenate(list(scored.values()))
    low, span = everything.min(), np.ptp(everything) or 1.0
    return {label: (scores - low) / span for label, scores in scored.items()}


def _normalise(groups: Iterable[Group]) -> dict[str, Array]:
    found = {group.label: group.normalised_scores for group in groups}
    return {label: scores for label, scores in found.items() if scores is not None and len(scores)}


def _improve(left: str, ours: seed_statistics.Strata, right: str, theirs: seed_statistics.Strata) -> Improvement:
    if seed_statistics.improvement(ours, theirs) < 0.5:
        left, ours, right, theirs = right, theirs, left, ours
    interval = seed_statistics.improvement_interval(ours, theirs)
    return Improvement(left, right, seed_statistics.improvement(ours, theirs), *interval, len(ours))
