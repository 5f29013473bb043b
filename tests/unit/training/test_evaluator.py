"""Scores and their summaries."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.training.evaluator import EpisodeScore, bootstrap_interval, interquartile_mean, summarise


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 100.0])) == 2.5
    # Five values: 1.25 are cut at each end, so 2 and 4 count three quarters: (0.75*2 + 3 + 0.75*4) / 2.5.
    assert interquartile_mean(np.array([9.0, 2.0, 3.0, 4.0, 0.0])) == pytest.approx(3.0)
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 10.0, 50.0])) == pytest.approx((0.75 + 2 + 7.5) / 2.5)
    assert interquartile_mean(np.array([7.0])) == 7.0


def test_bootstrap_interval_repeats_and_covers_the_mean() -> None:
    values = np.arange(100.0)
    low, high = bootstrap_interval(values, seed=3)
    assert (low, high) == bootstrap_interval(values, seed=3)
    # The deviation of the mean is 28.9 / 10, so the interval is about 49.5 +- 5.7.
    assert low == pytest.approx(43.8, abs=1.0)
    assert high == pytest.approx(55.2, abs=1.0)


def test_summary_has_all_numbers() -> None:
    scores = [EpisodeScore(0, 1.0, 10, {"log/success": 0.0}), EpisodeScore(1, 3.0, 20, {"log/success": 1.0})]
    summary = summarise(scores, seed=0)
    assert summary["return_mean"] == 2.0
    assert summary["return_std"] == 1.0
    assert (summary["return_min"], summary["return_max"]) == (1.0, 3.0)
    assert summary["length_mean"] == 15.0
    assert summary["episodes"] == 2
    assert summary["log/success"] == 0.5
    assert 1.0 <= summary["return_low"] <= summary["return_high"] <= 3.0
