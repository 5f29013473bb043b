"""How often equal settings are called different, and how many seeds are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.report.rank_test import two_sided_p
from reverie.report.stopping import ERROR, FEWEST, HOPELESS, holm, levels, seeds_needed

MOST = 10


def test_levels_spend_the_error_and_no_more() -> None:
    for most in (4, 6, 10, 20):
        found = levels(most)
        assert list(found) == list(range(2, most + 1))
        assert 0.0 < sum(found.values()) <= ERROR
        spent = np.cumsum(list(found.values()))
        assert all(spent[runs - 2] <= ERROR * runs / most + 1e-12 for runs in found)
    assert levels(10)[3] == 0.0
    assert levels(10)[5] == pytest.approx(4 / 252)


def test_equal_settings_are_seldom_called_different_however_often_one_looks() -> None:
    """At every number of seeds, the most that anybody can look. The bench repeats it 2,000 times."""
    called = {"corrected": 0, "naive": 0}
    for repetition in range(400):
        rng = make_generator("test", "looks", repetition)
        left, right = rng.normal(0.0, 1.0, (2, MOST))
        p_values = {runs: two_sided_p(left[:runs], right[:runs]) for runs in range(2, MOST + 1)}
        called["corrected"] += any(p <= levels(MOST)[runs] for runs, p in p_values.items())
        called["naive"] += any(p <= ERROR for p in p_values.values())
    assert called["corrected"] <= ERROR * 400
    assert called["naive"] > ERROR * 400  # so the correction is needed


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.05 / 3, 0.025, 0.025])
    assert holm([0.001, 0.02, 0.9]) == pytest.approx([0.05 / 3, 0.025, 0.05])
    assert holm([]) == []


@pytest.mark.parametrize(("left", "right", "least", "most"), [
    (np.array([5.0, 6.0]), np.array([1.0, 2.0]), FEWEST, 6),
    (np.array([5.0, 6.0, 1.5]), np.array([1.0, 2.0, 1.2]), 7, 20),
])  # fmt: skip
def test_clear_differences_need_few_seeds(left: Array, right: Array, least: int, most: int) -> None:
    needed = seeds_needed(left, right)
    assert needed is not None
    assert least <= needed <= most


def test_what_nothing_is_known_about_starts_with_a_few() -> None:
    assert seeds_needed(np.array([1.0]), np.array([2.0, 3.0])) == 5
    assert seeds_needed(np.full(4, 500.0), np.full(4, 500.0)) is None


def test_a_result_that_is_not_decided_needs_more_seeds_than_there_are() -> None:
    """Eight separated from eight would have been decided, so the estimate is for what is still to come."""
    assert seeds_needed(np.arange(8) + 100.0, np.arange(8) * 1.0) == 9
    assert HOPELESS == 50


def test_the_asked_for_number_decides_about_as_often_as_promised() -> None:
    """From the true distributions: two standard deviations apart, the number that Noether's formula gives."""
    rng = make_generator("test", "power")
    needed = seeds_needed(rng.normal(2.0, 1.0, 500), rng.normal(0.0, 1.0, 500))
    assert needed == 501  # of what is there already
    chance, runs = 0.92, 8  # Phi(2 / sqrt 2) wins: (1.96 + 0.84)^2 / (6 * 0.42^2) = 7.4
    assert chance == pytest.approx(float((rng.normal(2, 1, 9999) > rng.normal(0, 1, 9999)).mean()), abs=0.02)
    decided = [two_sided_p(rng.normal(2.0, 1.0, runs), rng.normal(0.0, 1.0, runs)) <= ERROR for _ in range(300)]
    assert float(np.mean(decided)) > 0.75
