"""Scores of a few runs: numbers worked by hand, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.statistics import interquartile_mean, interquartile_means
from reverie.report.seed_statistics import (
    aggregate,
    aggregate_interval,
    better_share,
    improvement,
    improvement_interval,
    mean_band,
    performance_profile,
)


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([9.0, 1.0, 3.0, 5.0])) == 4.0  # the 1 and the 9 fall away
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # nothing falls away below four
    assert interquartile_mean(np.array([1.0, 2.0, 6.0, 7.0, 90.0])) == 5.0
    assert interquartile_mean(np.array([7.0])) == 7.0
    rows = interquartile_means(np.array([[1.0, 3.0, 5.0, 9.0], [0.0, 0.0, 0.0, 100.0]]))
    assert rows.tolist() == [4.0, 0.0]


def test_aggregate_takes_the_scores_of_all_tasks_together() -> None:
    assert aggregate([np.array([1.0, 3.0]), np.array([5.0, 9.0])]) == 4.0


def test_the_interval_draws_within_tasks() -> None:
    tasks = [np.array([0.0, 0.0, 0.0, 0.0]), np.array([10.0, 10.0, 10.0, 10.0])]
    assert aggregate_interval(tasks) == (5.0, 5.0)  # drawn over tasks together, they would mix in other shares
    low, high = aggregate_interval([np.concatenate(tasks)])
    assert low < 5.0 < high


def test_intervals_are_the_same_every_time() -> None:
    scores = [np.array([1.0, 4.0, 2.0, 8.0, 5.0])]
    assert aggregate_interval(scores) == aggregate_interval(scores)
    low, high = aggregate_interval(scores)
    assert 1.0 <= low < aggregate(scores) < high <= 8.0


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = make_generator("test", "coverage")
    intervals = [aggregate_interval([rng.normal(3.0, 1.0, 20)]) for _ in range(200)]
    held = sum(low <= 3.0 <= high for low, high in intervals)
    assert 170 <= held <= 198  # 95 % of 200, a little less for the bootstrap of 20


def test_improvement_by_hand() -> None:
    assert improvement([np.array([1.0, 2.0])], [np.array([0.0, 1.0])]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    assert improvement([np.array([3.0])], [np.array([3.0])]) == 0.5
    both = improvement([np.array([1.0]), np.array([0.0])], [np.array([0.0]), np.array([1.0])])
    assert both == 0.5  # wins the one task and loses the other


def test_improvement_interval() -> None:
    assert improvement_interval([np.array([5.0, 6.0])], [np.array([1.0, 2.0])]) == (1.0, 1.0)
    low, high = improvement_interval([np.array([1.0, 2.0, 3.0])], [np.array([1.0, 2.0, 3.0])])
    assert low < 0.5 < high


def test_bands_of_curves() -> None:
    curves = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 5.0]])
    mean, low, high = mean_band(curves)
    assert mean.tolist() == [0.0, 3.0]
    assert (low[0], high[0]) == (0.0, 0.0)
    assert 1.0 <= low[1] < 3.0 < high[1] <= 5.0
    mean, low, high = mean_band(curves[:1])
    assert mean.tolist() == low.tolist() == high.tolist() == [0.0, 1.0]


OURS = np.array([[1.0, 3.0, 5.0], [2.0, 2.5, 9.0], [4.0, 0.5, 7.0], [8.0, 3.5, 6.0], [16.0, 1.5, 2.0]])
THEIRS = np.array([[0.5, 3.0, 4.0], [2.0, 2.0, 8.0], [3.0, 0.0, 7.5], [9.0, 1.0, 6.0]])
"""Scores (runs, tasks). The numbers below are what rliable 1.2.0 computes for them."""


def test_interquartile_means_are_those_of_rliable() -> None:
    assert aggregate(list(OURS.T)) == pytest.approx(3.888888888888889)
    assert aggregate(list(THEIRS.T)) == pytest.approx(3.3333333333333335)
    scores = [9.0, 1.0, 4.0, 7.0, 2.0, 30.0, 5.0]
    by_number = [interquartile_mean(np.array(scores[:number])) for number in range(1, 8)]
    assert by_number == pytest.approx([9.0, 5.0, 4.666666666666667, 5.5, 4.333333333333333, 5.5, 5.4])


def test_intervals_are_those_of_rliable() -> None:
    """It drew 50,000 times, we draw 2,000 times."""
    assert aggregate_interval(list(OURS.T)) == pytest.approx((2.5, 5.666666666666667), abs=0.15)
    assert aggregate_interval(list(THEIRS.T)) == pytest.approx((2.0833333333333335, 5.25), abs=0.15)
    found = improvement_interval(list(OURS.T), list(THEIRS.T))
    assert found == pytest.approx((0.3499999999999999, 0.7833333333333333), abs=0.03)


def test_improvements_are_those_of_rliable() -> None:
    assert improvement(list(OURS.T), list(THEIRS.T)) == pytest.approx(0.575)
    assert improvement(list(THEIRS.T), list(OURS.T)) == pytest.approx(0.425)


def test_performance_profiles_are_those_of_rliable() -> None:
    thresholds = np.array([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
    above, low, high = performance_profile(list(OURS.T), thresholds)
    assert above == pytest.approx([1.0, 13 / 15, 10 / 15, 8 / 15, 5 / 15, 2 / 15])
    assert low == pytest.approx([1.0, 10 / 15, 6 / 15, 5 / 15, 2 / 15, 0.0], abs=0.07)
    assert high == pytest.approx(
        [1.0, 1.0, 0.8666666666666667, 0.7333333333333333, 0.5333333333333333, 1 / 3], abs=0.07
    )


def test_how_often_resamples_are_better_by_hand() -> None:
    """Of one run each there is only one resample; two against one draw 0, 1, 1 or 2 with equal chances against 1."""
    assert better_share([np.array([2.0])], [np.array([1.0])]) == 1.0
    assert better_share([np.array([2.0])], [np.array([2.0])]) == 0.5
    assert better_share([np.array([0.0, 2.0])], [np.array([1.0])]) == pytest.approx(0.5, abs=0.04)
    assert better_share([np.array([1.0, 2.0])], [np.array([1.0])]) == pytest.approx(0.875, abs=0.03)
