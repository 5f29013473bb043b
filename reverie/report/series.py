"""Curves in bounded memory: neighbouring points are merged into buckets with their mean, minimum and maximum."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import numpy as np

from reverie.core.types import Array

MOST_BUCKETS = 512
CHUNK = 2048
DRAWABLE = 1e100
"""Larger values are drawn as this, because their sums would overflow."""


@dataclass(frozen=True)
class Curve:
    """A curve as it is drawn: one entry per bucket, ordered by x."""

    x: Array
    mean: Array
    low: Array
    high: Array

    def __len__(self) -> int:
        return len(self.x)


class Series:
    """Any number of points (x, y) as a curve of at most 512 buckets, with exact extremes."""

    def __init__(self) -> None:
        self.count = 0
        self.not_finite = 0
        self.last = math.nan
        self.lowest, self.highest = math.inf, -math.inf
        self._x, self._y = array("d"), array("d")
        self._buckets = np.zeros((5, 0))
        """Rows: sum of x, sum of y, lowest y, highest y, number of points."""
        self._stride = 1

    def add(self, x: float, y: float) -> None:
        if not math.isfinite(y):
            self.not_finite += 1
            return
        self.count += 1
        self.last = y
        self._x.append(x)
        self._y.append(y)
        if len(self._y) >= CHUNK:
            self._fold()

    def curve(self) -> Curve:
        """The curve so far."""
        self._fold()
        total_x, total_y, low, high, count = self._buckets
        x = total_x / count
        order = np.argsort(x, kind="stable")
        return Curve(x[order], (total_y / count)[order], low[order], high[order])

    def extremes(self) -> tuple[float, float]:
        """Lowest and highest value. NaN without values."""
        self._fold()
        return (self.lowest, self.highest) if self.count else (math.nan, math.nan)

    def _fold(self) -> None:
        """Put pending points into buckets, and merge pairs of buckets while there are too many."""
        if self._y:
            x, y = np.array(self._x), np.array(self._y)
            self._x, self._y = array("d"), array("d")
            self.lowest, self.highest = min(self.lowest, float(y.min())), max(self.highest, float(y.max()))
            y = np.clip(y, -DRAWABLE, DRAWABLE)
            points = np.stack([x, y, y, y, np.ones_like(x)])
            self._buckets = np.concatenate([self._buckets, _merge(points, min(self._stride, CHUNK))], axis=1)
        while self._buckets.shape[1] > MOST_BUCKETS:
            self._buckets = _merge(self._buckets, 2)
            self._stride *= 2


def _merge(buckets: Array, size: int) -> Array:
    """Merge every ``size`` neighbouring buckets."""
    if size == 1:
        return buckets
    starts = np.arange(0, buckets.shape[1], size)
    x, y, low, high, count = buckets
    return np.stack(
        [
            np.add.reduceat(x, starts),
            np.add.reduceat(y, starts),
            np.minimum.reduceat(low, starts),
            np.maximum.reduceat(high, starts),
            np.add.reduceat(count, starts),
        ]
    )
