"""The data of the live table: the newest value and history of each metric, alerts, and the run's progress.

At most ``MOST_TRACKED`` metrics are kept, the most important ones. The others are only counted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reverie.core.counters import Budget
from reverie.log.metric_styles import Rules, Style
from reverie.log.sparkline import Trend

MOST_TRACKED = 300
MOST_SEEN = 20_000
"""Further metric names are ignored. An env that puts numbers into names would otherwise use up memory."""
LAST_ALERTS = 3
PACE_RECORDS = 20


@dataclass
class Metric:
    """One metric over time."""

    name: str
    style: Style
    seen: int
    value: float = math.nan
    best: float = math.nan
    trend: Trend = field(default_factory=Trend)

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    @property
    def label(self) -> str:
        return self.name.partition("/")[2]

    def add(self, value: float) -> None:
        self.value = value
        self.trend.add(value)
        if math.isfinite(value) and (math.isnan(self.best) or self.style.is_better(value, self.best)):
            self.best = value


@dataclass(frozen=True)
class Alert:
    """A line of the alerts area."""

    level: str
    text: str
    position: int
    """In env steps or updates, like the run's budget."""


class TableData:
    """Collects records for the table. Independent of how it is drawn."""

    def __init__(self, rules: Rules, budget: Budget = Budget()) -> None:  # noqa: B008 - it never changes
        self.rules = rules
        self.budget = budget
        self.title = ""
        self.position: dict[str, Any] = {}
        self.metrics: dict[str, Metric] = {}
        self.alerts: deque[Alert] = deque(maxlen=LAST_ALERTS)
        self.began = time.perf_counter()
        self._met = 0
        self._least: Metric | None = None
        self._passed: set[str] = set()
        self._unwanted: set[str] = set()
        self._pace: deque[tuple[float, int]] = deque(maxlen=PACE_RECORDS)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Add a record of the kinds ``metrics`` and ``machine``. Other kinds are ignored."""
        if kind not in ("metrics", "machine"):
            return
        for name, value in record.items():
            if "/" not in name:
                self.position[name] = value
            elif name in self.metrics:
                self.metrics[name].add(float(value))
            elif name not in self._passed and name not in self._unwanted:
                self._add(name, float(value))

    def alert(self, level: str, text: str, position: int | None = None) -> None:
        self.alerts.append(Alert(level, text, self.done if position is None else position))

    def tick(self, now: float | None = None) -> None:
        """Record the time and the progress, to estimate the time left."""
        self._pace.append((time.perf_counter() if now is None else now, self.done))

    @property
    def done(self) -> int:
        """Progress in the counter of the budget."""
        return int(self.position.get(self.budget.counter, 0))

    @property
    def fraction(self) -> float | None:
        """The fraction of the budget that is done. None without a budget."""
        return min(1.0, self.done / self.budget.total) if self.budget.total else None

    @property
    def seconds_left(self) -> float | None:
        if not self.budget.total or len(self._pace) < 2:
            return None
        (then, done_then), (now, done_now) = self._pace[0], self._pace[-1]
        if done_now <= done_then:
            return None
        left = max(0, self.budget.total - done_now) * (now - then) / (done_now - done_then)
        return max(0.0, left - (time.perf_counter() - now))

    def chosen(self, count: int) -> list[Metric]:
        """The ``count`` most important metrics, in drawing order."""
        by_importance = sorted(self.metrics.values(), key=lambda metric: (-metric.style.importance, metric.seen))
        ranks = {metric.group: self.rules.group_rank(metric.group) for metric in by_importance}
        return sorted(by_importance[: max(0, count)], key=lambda metric: ranks[metric.group])

    def hidden(self, shown: int) -> int:
        """How many metrics are left out if ``shown`` of them are drawn."""
        return len(self.metrics) - shown + len(self._passed)

    def _add(self, name: str, value: float) -> None:
        """Start tracking a new metric if there is room, or replace a less important one."""
        if len(self._passed) + len(self._unwanted) >= MOST_SEEN:
            return
        if not self.rules.is_wanted(name):
            self._unwanted.add(name)
            return
        self._met += 1
        metric = Metric(name, self.rules.style(name), self._met)
        if len(self.metrics) >= MOST_TRACKED and not self._make_room(metric):
            self._passed.add(name)
            return
        self.metrics[name] = metric
        metric.add(value)

    def _make_room(self, metric: Metric) -> bool:
        if self._least is None:
            self._least = min(self.metrics.values(), key=lambda known: (known.style.importance, -known.seen))
        if metric.style.importance <= self._least.style.importance:
            return False
        del self.metrics[self._least.name]
        self._passed.add(self._least.name)
        self._least = None
        return True
