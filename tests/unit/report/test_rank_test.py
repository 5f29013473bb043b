"""The permutation test against numbers counted by hand and all permutations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.report import rank_test
from reverie.report.rank_test import attainable_levels, doubled_ranks, two_sided_p


def counted(left: Array, right: Array) -> float:
    """By going through all ways to choose the left group."""
    ranks = doubled_ranks(np.concatenate([left, right]))
    sums = [sum(ranks[list(chosen)]) for chosen in combinations(range(len(ranks)), len(left))]
    distance = abs(sum(ranks[: len(left)]) - np.mean(sums))
    return float(np.mean([abs(total - np.mean(sums)) >= distance - 1e-9 for total in sums]))


def test_separated_groups_by_hand() -> None:
    """Two of all 6, 20, 70 and 252 choices separate the groups completely."""
    for runs, choices in ((2, 6), (3, 20), (4, 70), (5, 252)):
        assert two_sided_p(np.arange(runs) + 100.0, np.arange(runs) * 1.0) == pytest.approx(2 / choices)
        assert attainable_levels(runs)[0] == pytest.approx(2 / choices)
    assert attainable_levels(2) == pytest.approx((2 / 6, 4 / 6, 1.0))


def test_ties_share_their_ranks() -> None:
    assert doubled_ranks(np.array([5.0, 1.0, 5.0, 9.0])).tolist() == [5, 2, 5, 8]
    assert two_sided_p(np.full(5, 500.0), np.full(5, 500.0)) == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_all_permutations_are_counted(seed: int) -> None:
    rng = make_generator("test", "ranks", seed)
    left, right = rng.integers(0, 9, 3 + seed % 3), rng.integers(2, 12, 5)
    assert two_sided_p(left, right) == pytest.approx(counted(left, right))
    assert two_sided_p(right, left) == pytest.approx(two_sided_p(left, right))


def test_many_runs_are_approximated(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = make_generator("test", "many")
    left, right = rng.normal(0.3, 1.0, 40), rng.normal(0.0, 1.0, 40)
    exact = two_sided_p(left, right)
    monkeypatch.setattr(rank_test, "LARGEST_EXACT", 10)
    assert two_sided_p(left, right) == pytest.approx(exact, rel=0.05)
    assert two_sided_p(np.ones(20), np.ones(20)) == 1.0


def test_no_runs_say_nothing() -> None:
    assert two_sided_p(np.array([]), np.array([1.0])) == 1.0
