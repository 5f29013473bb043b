"""Curves in one line, and histories of any length in a few points."""

from __future__ import annotations

import math

import pytest

from reverie.log.sparkline import CAPACITY, Trend, sparkline


def test_values_from_low_to_high() -> None:
    assert sparkline(range(8), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 1, 2], 3) == "█▁▅"


def test_it_is_as_wide_as_asked_for() -> None:
    for length in (1, 3, 10, 1000):
        assert len(sparkline(list(range(length)), 10)) == 10
    assert sparkline([0, 1], 6) == "▁▁▁███"
    assert sparkline([], 6) == sparkline([1, 2], 0) == ""


def test_many_values_are_averaged() -> None:
    assert sparkline([0, 0, 4, 4, 8, 8], 3) == "▁▅█"


def test_a_constant_is_a_line_in_the_middle() -> None:
    assert sparkline([5.0, 5.0], 2) == "▄▄"


def test_what_is_not_a_number_is_a_gap() -> None:
    assert sparkline([0, math.nan, 1, math.inf], 4) == "▁ █ "
    assert sparkline([math.nan], 2) == "  "


def test_huge_numbers_do_not_overflow() -> None:
    assert sparkline([-1.7e308, 1.7e308], 2) == "▁█"


def test_a_trend_keeps_the_whole_history_in_few_points() -> None:
    trend = Trend()
    for number in range(100 * CAPACITY):
        trend.add(float(number))
    assert CAPACITY // 2 <= len(trend.points) < CAPACITY
    assert trend.points == sorted(trend.points)
    assert trend.points[0] < 200
    assert trend.points[-1] > 99 * CAPACITY


@pytest.mark.parametrize(
    ("values", "direction"), [([1, 2], 1), ([2, 1], -1), ([1, 1], 0), ([1], 0), ([], 0), ([math.nan, 1, 2], 1)]
)
def test_where_a_trend_is_going(values: list[float], direction: int) -> None:
    trend = Trend()
    for value in values:
        trend.add(value)
    assert trend.direction() == direction


def test_a_small_change_is_none() -> None:
    trend = Trend()
    for value in (0.0, 100.0, 50.0, 50.5):
        trend.add(value)
    assert trend.direction() == 0
