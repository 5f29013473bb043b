"""A sum tree: draws by weight in logarithmic time.

The usual tree is searched once per sample, and each write adds its change to all sums above, so rounding errors add up
and depend on the order of writes. Here all samples descend together, level by level, and a sum is always recomputed
from its two children. So the tree depends only on its leaves: after a thousand writes it equals, bit for bit, a tree
that was built from the same leaves at once. Resuming exactly needs this.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from reverie.core.types import Array


class SumTree:
    """A binary tree over ``num_leaves`` non-negative weights, initially 0."""

    ROW_BYTES = 16
    """Memory per leaf: 8 bytes for its weight, and 8 bytes of sums."""

    def __init__(self, num_leaves: int) -> None:
        sizes = [max(2, num_leaves)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // 2))
        # Every level but the root has an even size, so that every node has a sibling.
        self.levels = [np.zeros(size + size % 2 if size > 1 else 1) for size in sizes]

    @property
    def total(self) -> float:
        return float(self.levels[-1][0])

    def weights(self, leaves: Array) -> Array:
        return self.levels[0][leaves]

    def write(self, leaves: Array, weights: Array) -> None:
        """Set the weights of distinct leaves and update the sums above them."""
        self.levels[0][leaves] = weights
        if len(leaves) * len(self.levels) > len(self.levels[0]):
            self._update_all_sums()
        else:
            self._update_sums_above(leaves)

    def find(self, targets: Array) -> Array:
        """The leaf at which the cumulative sum of weights passes each target, never one of weight 0.

        Targets are between 0 and the total, which must not be 0.
        """
        index, rest = np.zeros(len(targets), np.int64), np.array(targets, np.float64)
        for level in reversed(self.levels[:-1]):
            index *= 2
            left, right = level[index], level[index + 1]
            # By rounding, a target may exceed the sum slightly. Without the second condition it would leave the tree.
            goes_right = (rest >= left) & (right > 0)
            rest -= left * goes_right
            index += goes_right
        return index

    def _update_sums_above(self, leaves: Array) -> None:
        index = leaves
        for below, above in pairwise(self.levels):
            index = index // 2  # siblings write the same sum twice
            above[index] = below[2 * index] + below[2 * index + 1]

    def _update_all_sums(self) -> None:
        for below, above in pairwise(self.levels):
            above[: len(below) // 2] = below[::2] + below[1::2]
