"""Summarises the records of a run's JSONL files for a report, one by one and in bounded memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reverie.report.safe_files import as_number
from reverie.report.series import Series

MOST_EVALUATIONS = 1024
MOST_CURVES = 200
MOST_NAMES = 2000
MOST_ALERTS = 200
LONGEST_NAME = 120
RECENT_EPISODES = 100
POSITIONS = ("env_steps", "frames", "updates", "cycles", "episodes", "phase")
FARTHEST = 1e18
"""Larger positions are damaged records."""
PART = re.compile(r"speed/([a-z_]+)_seconds")
WORDS = (
    "loss", "return", "success", "kl", "entropy", "value", "explained_variance", "grad_norm", "clip_fraction", "reward",
    "temperature", "alpha", "epsilon", "score", "regret", "achievement", "learning_rate", "norm",
)  # fmt: skip
"""Words in metric names, the most important first."""


def importance(name: str) -> int:
    """Sorting key of a metric. Smaller is more important."""
    word = name.rpartition("/")[2]
    if word == "loss":
        return 0
    found = [index for index, known in enumerate(WORDS) if known in word]
    return 1 + min(found) if found else len(WORDS) + 1


def position_of(record: Mapping[str, Any], axis: str = "env_steps") -> float | None:
    """The position of a record on the axis."""
    x = as_number(record.get(axis))
    return None if x is None else min(max(x, 0.0), FARTHEST)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation. ``low`` to ``high`` is the interval of the mean."""

    x: float
    mean: float
    minimum: float
    maximum: float
    low: float
    high: float
    std: float | None = None
    episodes: int | None = None
    updates: float | None = None


class Evaluations:
    """All evaluations. Neighbours are merged if there are too many, but the best and the last stay exact."""

    def __init__(self) -> None:
        self.rows: list[Evaluation] = []
        self.count = 0
        self.best: Evaluation | None = None
        self.last: Evaluation | None = None

    def add(self, record: Mapping[str, Any], x: float) -> None:
        mean = as_number(record.get("evaluate/return_mean"))
        if mean is None:
            return
        minimum, maximum, low, high = (
            mean if (bound := as_number(record.get(f"evaluate/return_{name}"))) is None else bound
            for name in ("min", "max", "low", "high")
        )
        episodes, std = as_number(record.get("evaluate/episodes")), as_number(record.get("evaluate/return_std"))
        count = None if episodes is None else int(episodes)
        updates = position_of(record, "updates")
        row = Evaluation(x, mean, minimum, maximum, low, high, std, count, updates)
        self.count += 1
        self.last = row
        if self.best is None or row.mean >= self.best.mean:  # of equal ones the latest, because its policy is kept
            self.best = row
        self.rows.append(row)
        if len(self.rows) > MOST_EVALUATIONS:
            self.rows = [_merge(*self.rows[i : i + 2]) for i in range(0, len(self.rows), 2)]


def _merge(first: Evaluation, second: Evaluation | None = None) -> Evaluation:
    if second is None:
        return first
    return replace(
        first, x=(first.x + second.x) / 2, mean=(first.mean + second.mean) / 2,
        minimum=min(first.minimum, second.minimum), maximum=max(first.maximum, second.maximum),
        low=min(first.low, second.low), high=max(first.high, second.high),
    )  # fmt: skip


class Value:
    """A metric without a curve: number of values, last value and extremes."""

    def __init__(self) -> None:
        self.count = 0
        self.not_finite = 0
        self.last = self.lowest = self.highest = float("nan")

    def add(self, x: float, y: float) -> None:
        if y - y != 0:  # NaN or infinite
            self.not_finite += 1
            return
        self.lowest = y if self.count == 0 or y < self.lowest else self.lowest
        self.highest = y if self.count == 0 or y > self.highest else self.highest
        self.count += 1
        self.last = y

    def extremes(self) -> tuple[float, float]:
        return self.lowest, self.highest


class Metrics:
    """All metrics by name: the first and the important ones as curves, others as values, the rest only counted."""

    def __init__(self) -> None:
        self.curves: dict[str, Series] = {}
        self.values: dict[str, Value] = {}
        self.unlisted = 0
        self._entries: dict[str, Series | Value | None] = dict.fromkeys(POSITIONS)
        """Where each metric goes. None for metrics that are skipped."""

    def add(self, record: Mapping[str, Any], x: float) -> None:
        entries = self._entries
        for name, value in record.items():
            entry = entries[name] if name in entries else self._make_entry(name, value)
            if entry is not None:
                number = value if type(value) is float else as_number(value)
                if number is not None:
                    entry.add(x, number)

    def _make_entry(self, name: str, value: Any) -> Series | Value | None:
        """Decide once, for a new metric, whether it becomes a curve, a value or is skipped."""
        if type(value) not in (int, float):
            return None
        if name.startswith(("evaluate/return", "evaluate/episodes")):
            self._entries[name] = None
            return None
        is_important = importance(name) <= len(WORDS)
        limit = MOST_CURVES if is_important else MOST_CURVES // 2
        has_room = len(self._entries) <= MOST_NAMES or (is_important and len(self.curves) < limit)
        if len(name) > LONGEST_NAME or not has_room:
            self.unlisted += 1
            if self.unlisted <= 50 * MOST_NAMES:
                self._entries[name] = None
            return None
        if len(self.curves) < limit:
            self._entries[name] = self.curves[name] = Series()
        else:
            self._entries[name] = self.values[name] = Value()
        return self._entries[name]


class Episodes:
    """The returns of the episodes collected in training."""

    def __init__(self) -> None:
        self.returns = Series()
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.count = 0
        self._successes: dict[str, int] = {}
        """In how many episodes each ``log/<key>`` was above 0 at the end."""

    @property
    def success_rates(self) -> dict[str, float]:
        """The fraction of episodes in which each ``log/<key>`` was above 0 at the end."""
        return {key: successes / self.count for key, successes in self._successes.items()}

    def add(self, record: Mapping[str, Any]) -> None:
        self.count += 1
        for key, value in record.items():
            if key.startswith("log/") and (key in self._successes or len(self._successes) < MOST_CURVES):
                self._successes[key] = self._successes.get(key, 0) + ((as_number(value) or 0.0) > 0)
        x, total = position_of(record), as_number(record.get("return"))
        if x is not None and total is not None:
            self.returns.add(x, total)
            self.recent.append(total)


class Machine:
    """Speed, memory and time by part of the loop. Cumulative numbers restart at 0 with every process."""

    def __init__(self, axis: str = "env_steps") -> None:
        self.axis = axis
        self.speed = Series()
        """Env steps, or updates, per second."""
        self.peak_megabytes: float | None = None
        self.crashes: float | None = None
        self.wall_seconds = 0.0
        self.times: list[tuple[float, float]] = []
        """Position and training time so far, one pair per record."""
        self._before: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        numbers = {key: number for key, value in record.items() if (number := as_number(value)) is not None}
        x, speed = position_of(record, self.axis), f"speed/{self.axis}_per_second"
        if x is not None and speed in numbers:
            self.speed.add(x, numbers[speed])
        self.peak_megabytes = max(numbers.get("memory/peak_megabytes", 0.0), self.peak_megabytes or 0.0) or None
        self.crashes = max(numbers.get("env/crashes", 0.0), self.crashes or 0.0)
        self._add_cumulative(
            {key: numbers[key] for key in numbers if PART.fullmatch(key) or key == "usage/cpu_seconds"}
        )
        self._add_time(numbers.get("time"))
        if x is not None:
            self.times.append((x, self.wall_seconds))

    @property
    def cpu_seconds(self) -> float | None:
        return self._total("usage/cpu_seconds")

    def parts(self) -> dict[str, float]:
        """Seconds by part of the loop, over all processes that worked on the run."""
        keys = [key for key in {**self._ended, **self._before} if PART.fullmatch(key)]
        return {match[1]: self._total(key) or 0.0 for key in keys if (match := PART.fullmatch(key))}

    def _add_cumulative(self, numbers: Mapping[str, float]) -> None:
        for key, number in numbers.items():
            before = self._before.get(key, 0.0)
            if number < before:  # a new process
                self._ended[key] = self._ended.get(key, 0.0) + before
                self._before.pop("time", None)
            self._before[key] = number

    def _add_time(self, now: float | None) -> None:
        if now is not None:
            self.wall_seconds += max(0.0, now - self._before.get("time", now))
            self._before["time"] = now

    def _total(self, key: str) -> float | None:
        known = [numbers[key] for numbers in (self._ended, self._before) if key in numbers]
        return sum(known) if known else None


@dataclass(frozen=True)
class Alert:
    """An alert of the run's monitor."""

    x: float | None
    level: str
    rule: str
    message: str


def read_alert(record: Mapping[str, Any], axis: str = "env_steps") -> Alert:
    words = [str(record.get(key, ""))[:500] for key in ("level", "rule", "message")]
    return Alert(position_of(record, axis), *words)
