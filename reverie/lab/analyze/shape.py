"""What a learning curve did, by its numbers alone: learnt, still improving, collapsed, got worse, or nothing learnt.

A change counts only if it is larger than the noise of the curve, which is estimated from the differences of
neighbouring points. With fewer than ``FEWEST_POINTS`` points nothing is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from reverie.core.types import Array

FEWEST_POINTS = 4
MOST_POINTS = 20
"""Longer curves are averaged to this many points, which makes single lucky episodes harmless."""
ENOUGH_STEPS = 9
SIGNIFICANT = 3.0
"""A change must be this many times its standard error."""
PROBABLE = 2.0
"""The same for whether a curve still rises, which is less of a claim."""
COLLAPSED = 0.4
"""Fraction of what was gained that is lost again in a collapse."""
RISING = 0.1
"""Fraction of what was gained that is gained in the last third of a curve that still improves."""
Kind = Literal["unknown", "nothing learnt", "learnt", "still improving", "plateau", "collapse", "got worse"]


@dataclass(frozen=True)
class Shape:
    """A curve in a few numbers. Levels are means over a tenth of its points."""

    kind: Kind
    points: int
    start: float = math.nan
    end: float = math.nan
    best: float = math.nan
    best_at: float = math.nan
    """Position of the best level."""
    error: float = math.nan
    """Standard error of a level."""
    rise: float = math.nan
    """What the last third gained, by a straight line through it."""


def read_shape(
    x: Array, y: Array, solved_at: float | None = None, merge: int = 1, random: float | None = None
) -> Shape:
    """The shape of a curve with at least one point, ordered by x. At least ``merge`` points are averaged to one.

    ``random`` is the return of random play: what lies between it and the first point was learnt before that point.
    """
    count = len(y)
    x, y = _merge(x, y, merge)
    if len(y) < FEWEST_POINTS:
        return Shape("unknown", count, float(y[0]), float(y[-1]), float(y.max()), float(x[y.argmax()]))
    window = max(1, len(y) // 10)
    levels = np.convolve(y, np.full(window, 1 / window), "valid")
    noise = _noise(y)
    place = int(levels.argmax())
    shape = Shape(
        "plateau", count, float(levels[0]), float(levels[-1]), float(levels[place]),
        float(x[place : place + window].mean()), noise / math.sqrt(window), _rise(x, y),
    )  # fmt: skip
    return replace(shape, kind=_kind(shape, len(y), noise, solved_at, random))


def _merge(x: Array, y: Array, least: int) -> tuple[Array, Array]:
    """Means of neighbouring points, if there are many or single ones are too noisy."""
    size = max(least, math.ceil(len(y) / MOST_POINTS))
    if size == 1 or len(y) < 2 * size:
        return x, y
    groups = len(y) // size
    merged_x, merged_y = ([part.mean() for part in np.array_split(values, groups)] for values in (x, y))
    return np.array(merged_x), np.array(merged_y)


def _noise(y: Array) -> float:
    """The standard deviation of a point around the curve, from the differences of neighbours.

    With enough points, a steady rise is subtracted, and the largest fifth, which may be real jumps, is left out. For
    normal noise that reduces the result to two thirds.
    """
    steps = np.diff(y)
    if len(steps) < ENOUGH_STEPS:
        return float(np.sqrt(np.mean(steps**2) / 2))
    sizes = np.sort(np.abs(steps - np.median(steps)))
    return 1.5 * float(np.sqrt(np.mean(sizes[: math.ceil(0.8 * len(sizes))] ** 2) / 2))


def _rise(x: Array, y: Array) -> float:
    third = max(2, len(y) // 3)
    x, y = x[-third:], y[-third:]
    if np.ptp(x) == 0:
        return 0.0
    slope: float = np.polyfit(x - x.mean(), y, 1)[0]
    return float(slope * np.ptp(x))


def _kind(shape: Shape, points: int, noise: float, solved_at: float | None, random: float | None) -> Kind:
    start = shape.start if random is None else min(random, shape.start)
    gained, lost = shape.best - start, shape.best - shape.end
    certain = max(SIGNIFICANT * math.sqrt(2) * shape.error, 1e-9 * max(1.0, abs(shape.best)))
    if lost > max(COLLAPSED * gained, certain):
        return "collapse" if gained > 0.5 * lost else "got worse"
    if solved_at is not None and shape.end >= solved_at:
        return "learnt"
    if gained <= certain:
        return "nothing learnt"
    third = max(2, points // 3)
    # The standard error of the rise of a straight line through n points is about noise * sqrt(12 / n).
    is_rising = shape.rise > max(RISING * gained, PROBABLE * noise * math.sqrt(12 / third))
    if is_rising:
        return "still improving"
    return "learnt" if solved_at is None else "plateau"
