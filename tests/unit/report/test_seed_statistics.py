"""Scores of a few runs: numbers worked by hand, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.statistics import interquartile_mean, interquartile_means
from reverie.report.seed_statistics import (
    aggregate,
    aggregate_interval,
    improvement,
    improvement_interval,
    mean_band,
)


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([9.0, 1.0, 3.0, 5.0])) == 4.0  # the 1 and the 9 fall away
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == pytest.approx((0.25 * 1 + 2 + 0.25 * 6) / 1.5)
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
