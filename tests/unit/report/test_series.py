"""Curves of any length in bounded memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reverie.report.series import DRAWABLE, MOST_BUCKETS, Series


def series_of(values: list[float]) -> Series:
    series = Series()
    for place, value in enumerate(values):
        series.add(float(place), value)
    return series


def test_short_curves_are_kept_as_they_are() -> None:
    curve = series_of([3.0, 1.0, 2.0]).curve()
    assert curve.x.tolist() == [0.0, 1.0, 2.0]
    assert curve.mean.tolist() == curve.low.tolist() == curve.high.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("count", [MOST_BUCKETS + 1, 5000, 100_003])
def test_long_curves_keep_extremes_and_the_mean(count: int) -> None:
    values = [0.5] * count
    values[count // 3], values[-2] = 99.0, -77.0
    series = series_of(values)
    curve = series.curve()
    assert len(curve) <= MOST_BUCKETS
    assert (curve.high.max(), curve.low.min()) == (99.0, -77.0)
    assert series.extremes() == (-77.0, 99.0)
    where = curve.x[curve.high.argmax()]
    assert abs(where - count // 3) <= count / MOST_BUCKETS * 2
    assert np.all(np.diff(curve.x) > 0)
    assert np.all((curve.low <= curve.mean) & (curve.mean <= curve.high))
    assert series.count == count
    assert series.last == 0.5


def test_a_straight_line_stays_one() -> None:
    curve = series_of([2.0 * place for place in range(50_000)]).curve()
    assert curve.mean == pytest.approx(2 * curve.x)


def test_points_out_of_order_are_sorted() -> None:
    series = Series()
    for x in (5.0, 1.0, 3.0):
        series.add(x, x)
    assert series.curve().x.tolist() == [1.0, 3.0, 5.0]


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    series = series_of([1.0, math.nan, math.inf, 2.0])
    assert (series.count, series.not_finite) == (2, 2)
    assert series.curve().mean.tolist() == [1.0, 2.0]


def test_huge_values_do_not_overflow() -> None:
    series = series_of([1.7e308] * 3000)
    assert series.curve().mean.max() == pytest.approx(DRAWABLE)
    assert series.extremes() == (1.7e308, 1.7e308)


def test_an_empty_series() -> None:
    series = Series()
    assert len(series.curve()) == 0
    assert all(map(math.isnan, series.extremes()))
