"""The tree of sums by hand, and against one that is built anew from the same leaves."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.data.sum_tree import SumTree


def make_tree(weights: Array) -> SumTree:
    tree = SumTree(len(weights))
    tree.write(np.arange(len(weights)), weights)
    return tree


def test_leaves_are_found_by_the_sum_to_their_left() -> None:
    tree = make_tree(np.array([1.0, 0.0, 2.0, 3.0, 0.0]))
    assert tree.total == 6
    targets = np.array([0, 0.99, 1, 2.99, 3, 5.99])
    assert tree.find(targets).tolist() == [0, 0, 2, 2, 3, 3]
    assert targets[1] == 0.99  # not used as scratch paper
    assert tree.weights(np.array([3, 1])).tolist() == [3, 0]


def test_a_write_moves_what_is_found() -> None:
    tree = make_tree(np.ones(100))
    tree.write(np.array([50]), np.array([0.0]))
    tree.write(np.array([3]), np.array([2.0]))
    assert tree.total == 100
    assert tree.find(np.array([2.5, 3.5, 4.5, 5.5, 50.5, 51.5])).tolist() == [2, 3, 3, 4, 49, 51]


@pytest.mark.parametrize("num_leaves", [1, 2, 3, 7, 64, 1000])
def test_a_changed_tree_equals_one_built_at_once(num_leaves: int) -> None:
    rng = make_generator("tree", num_leaves)
    weights, tree = np.zeros(num_leaves), SumTree(num_leaves)
    for count in rng.integers(0, num_leaves + 1, 50):
        leaves = rng.permutation(num_leaves)[: count if rng.random() < 0.3 else min(count, 5)]
        weights[leaves] = rng.random(len(leaves)) ** 8 * (rng.random(len(leaves)) < 0.8)
        tree.write(leaves, weights[leaves])
        for found, wanted in zip(tree.levels, make_tree(weights).levels, strict=True):
            assert found.tobytes() == wanted.tobytes()
    assert tree.total == pytest.approx(weights.sum())


def test_memory_is_what_is_said() -> None:
    levels = SumTree(1_000_000).levels
    assert sum(level.nbytes for level in levels) == pytest.approx(1_000_000 * SumTree.ROW_BYTES, rel=1e-4)


def test_a_leaf_of_weight_0_is_never_found() -> None:
    rng = make_generator("zeros")
    for _ in range(200):
        weights = 10.0 ** rng.uniform(-12, 12, 37) * (rng.random(37) < 0.4)
        weights[rng.integers(37)] = 1.0
        tree = make_tree(weights)
        edges = np.concatenate([[0.0], np.cumsum(weights), [tree.total, np.nextafter(tree.total, np.inf)]])
        found = tree.find(np.concatenate([edges, np.nextafter(edges, 0), rng.random(50) * tree.total]))
        assert (weights[found] > 0).all()
