"""What there is to show: the newest value of each metric with its history, alerts, where the run stands.

Many metrics cost nothing: beyond ``MOST_TRACKED`` only the more important ones are followed, the others are counted.
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
"""Names beyond these are not even looked at: somebody puts numbers into names."""
LAST_ALERTS = 3
PACE_RECORDS = 20


@dataclass
class Metric:
    """One number over time."""

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
    """A line for the alerts area."""

    level: str
    text: str
    place: int
    """By the counter that the run goes by."""


class TableData:
    """Takes records as they come; knows nothing of screens."""

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
        """A record of metrics or of the machine; other kinds are not for the board."""
        if kind not in ("metrics", "machine"):
            return
        for name, value in record.items():
            if "/" not in name:
                self.position[name] = value
            elif name in self.metrics:
                self.metrics[name].add(float(value))
            elif name not in self._passed and name not in self._unwanted:
                self._meet(name, float(value))

    def alert(self, level: str, text: str, place: int | None = None) -> None:
        self.alerts.append(Alert(level, text, self.done if place is None else place))

    def tick(self, now: float | None = None) -> None:
        """Note when the run was where, to tell how long the rest will take."""
        self._pace.append((time.perf_counter() if now is None else now, self.done))

    @property
    def done(self) -> int:
        """How far the run has come, in what its budget is counted in."""
        return int(self.position.get(self.budget.counter, 0))

    @property
    def share(self) -> float | None:
        """The share of the budget that is done; None where it is open."""
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
        """The ``count`` most important metrics, in the order in which they are drawn."""
        by_importance = sorted(self.metrics.values(), key=lambda metric: (-metric.style.importance, metric.seen))
        ranks = {metric.group: self.rules.group_rank(metric.group) for metric in by_importance}
        return sorted(by_importance[: max(0, count)], key=lambda metric: ranks[metric.group])

    def hidden(self, shown: int) -> int:
        """How many metrics a drawing with ``shown`` of them leaves out."""
        return len(self.metrics) - shown + len(self._passed)

    def _meet(self, name: str, value: float) -> None:
        """A name that was not there before: follow it if there is room, or in the place of a less important one."""
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
