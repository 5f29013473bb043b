"""Weights with their sums over ever larger neighbourhoods: drawing by weight in a logarithmic number of steps.

Usually a tree of sums is walked once per sample, and each write adds its difference to all the sums above, so that
rounding errors gather and depend on the past. Here all samples go down together, level by level, and a sum is always
the two below it added again. So the tree depends on its leaves alone: one that was changed a thousand times equals, bit
for bit, one that was built from the same leaves at once.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from reverie.core.types import Array


class SumTree:
    """A binary tree over ``num_leaves`` weights of 0 or more; all are 0 at first."""

    ROW_BYTES = 16
    """Memory per leaf: two floats of 8 bytes, one of them for its share of the sums."""

    def __init__(self, num_leaves: int) -> None:
        sizes = [max(2, num_leaves)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // 2))
        # An even number on each level but the last, so that everything but the root has a neighbour.
        self.levels = [np.zeros(size + size % 2 if size > 1 else 1) for size in sizes]

    @property
    def total(self) -> float:
        return float(self.levels[-1][0])

    def weights(self, leaves: Array) -> Array:
        return self.levels[0][leaves]

    def write(self, leaves: Array, weights: Array) -> None:
        """Set weights and all sums above them; no leaf may be named twice."""
        self.levels[0][leaves] = weights
        if len(leaves) * len(self.levels) > len(self.levels[0]):
            self._add_everything()
        else:
            self._add_above(leaves)

    def find(self, targets: Array) -> Array:
        """The leaf at which the sum of the weights from the left passes each target; never one of weight 0.

        Targets lie between 0 and the total, which must not be 0.
        """
        index, rest = np.zeros(len(targets), np.int64), np.array(targets, np.float64)
        for level in reversed(self.levels[:-1]):
            index *= 2
            left, right = level[index], level[index + 1]
            # Rounding may leave a target a little beyond the sum: without the second half it would fall off the end.
            goes_right = (rest >= left) & (right > 0)
            rest -= left * goes_right
            index += goes_right
        return index

    def _add_above(self, leaves: Array) -> None:
        index = leaves
        for below, above in pairwise(self.levels):
            index = index // 2  # neighbours meet here and write the same sum twice
            above[index] = below[2 * index] + below[2 * index + 1]

    def _add_everything(self) -> None:
        for below, above in pairwise(self.levels):
            above[: len(below) // 2] = below[::2] + below[1::2]
