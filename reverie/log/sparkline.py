"""A curve in one line of text, and the thinned-out history that it is drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-~=+*#"
CAPACITY = 256


class Trend:
    """The history of a metric in at most ``CAPACITY`` points. When it is full, neighbouring points are averaged."""

    def __init__(self) -> None:
        self.points: list[float] = []
        self._values_per_point = 1
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        self._pending.append(value)
        if len(self._pending) < self._values_per_point:
            return
        self.points.append(_mean(self._pending))
        self._pending = []
        if len(self.points) >= CAPACITY:
            self._values_per_point *= 2
            self.points = [_mean(self.points[i : i + 2]) for i in range(0, len(self.points), 2)]

    def direction(self) -> int:
        """1 if the mean of the last tenth is above that of the tenth before, -1 if below, 0 if about equal."""
        finite = [point for point in self.points if math.isfinite(point)]
        length = max(1, len(finite) // 10)
        if len(finite) < 2 * length:
            return 0
        change = _mean(finite[-length:]) - _mean(finite[-2 * length : -length])
        if abs(change) <= 0.02 * (max(finite) - min(finite)):
            return 0
        return 1 if change > 0 else -1


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """Exactly ``width`` characters, so that the curves of a run line up. Values that are not finite become gaps."""
    if width < 1 or not values:
        return ""
    points = _resample(values, width)
    finite = [point for point in points if math.isfinite(point)]
    if not finite:
        return " " * len(points)
    low, high = min(finite), max(finite)
    return "".join(_block(point, low, high, blocks) for point in points)


def _block(point: float, low: float, high: float, blocks: str) -> str:
    if not math.isfinite(point):
        return " "
    if low == high:
        return blocks[len(blocks) // 2 - 1]
    return blocks[round((point / 2 - low / 2) / (high / 2 - low / 2) * (len(blocks) - 1))]  # halves cannot overflow


def _resample(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return [values[i * len(values) // width] for i in range(width)]
    edges = [i * len(values) // width for i in range(width + 1)]
    return [_mean(values[begin:end]) for begin, end in pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan
