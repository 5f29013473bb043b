"""Prioritised sampling: Schaul et al. 2016, "Prioritized experience replay", in its proportional form.

A row's chance is its weight, ``(|priority| + epsilon) ** alpha``; rows that nothing is known of yet have the largest
weight so far. Departures: samples of a batch are independent (the paper draws one from each of B equal parts), so that
mixtures with other samplers mean what they say; and ``beta`` grows with the rows added, the only clock that a buffer
has.

The usual tree holds a weight for every row, and what must not be sampled is drawn again or served all the same. Here a
tree holds only anchors that are legal for one kind of sample: a row enters it when the rows that it needs have come,
and leaves it before one of them goes. Weights are what is saved; trees follow from them and the rows.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import TrainingError
from reverie.core.types import Array, State
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_legal
from reverie.data.sampler import Draw, no_legal_sample
from reverie.data.sum_tree import SumTree

_SMALLEST, _LARGEST = np.finfo(np.float32).tiny, np.finfo(np.float32).max
"""Bounds of weights: one of 0 would mean that a row is not legal."""
_MOST_WRITES = 1000
"""A tree that was not drawn from for so many writes is let go: to build it again costs no more than to catch up."""


class PrioritisedSampler:
    """Rows from which there was much to learn are drawn more often."""

    class Config(ComponentConfig):
        """How much priorities count."""

        kind: str = "prioritised"
        """Rows with large errors more often; for algorithms that report priorities."""
        alpha: float = Field(0.6, ge=0, le=1)
        """How much priorities count: 0 draws all rows alike, 1 in proportion to them."""
        beta_start: float = Field(0.4, ge=0, le=1)
        """How much of the bias by that is corrected in updates at first: 0 nothing, 1 all of it."""
        beta_end: float = Field(1.0, ge=0, le=1)
        """How much of it is corrected after beta_rows."""
        beta_rows: int | None = Field(None, ge=1)
        """Rows over all envs until beta_end is reached; empty: the env steps of the run, fixed when it is created.
        A run without a budget of env steps corrects by beta_end from the start."""
        epsilon: float = Field(1e-6, gt=0)
        """Added to every priority, so that no row is lost for good."""

    uses_priorities = True

    def __init__(self, config: Config, rows: ObservedColumns) -> None:
        self.config = config
        self.rows = rows
        self._weights = np.zeros(rows.capacity_rows, np.float32)  # by slot
        self._trees: dict[Span, LegalTree] = {}
        self._largest = 1.0
        self._admitted = rows.oldest * rows.num_envs
        """The first id that has no weight yet."""

    @staticmethod
    def row_bytes(config: ComponentConfig) -> int:
        """A weight, and a place in one tree; hooks that read other kinds of samples have one each."""
        return np.dtype(np.float32).itemsize + SumTree.ROW_BYTES

    @property
    def beta(self) -> float:
        progress = min(1.0, self.rows.end * self.rows.num_envs / (self.config.beta_rows or 1))
        return self.config.beta_start + progress * (self.config.beta_end - self.config.beta_start)

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        """Samples in proportion to their weights; importance is the largest, 1, for the least likely of them."""
        self._admit()
        if span not in self._trees:
            self._trees[span] = LegalTree(self.rows, span)
        sums = self._trees[span].refresh(self._weights)
        if not sums.total > 0:
            raise no_legal_sample(self.rows, span)
        slots = sums.find(rng.random(count) * sums.total)
        weights = sums.weights(slots)
        importance = (weights.min(initial=np.inf) / weights) ** self.beta
        return Draw(self.rows.ids_at(slots), importance.astype(np.float32))

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        self._admit()
        ids, weights = np.asarray(ids), self._weigh(np.asarray(priorities))
        if weights.shape != ids.shape:
            raise TrainingError(
                f"The algorithm wrote back priorities of shape {weights.shape} for ids of shape {ids.shape}.",
                "Give one priority per id.",
            )
        is_stored = self.rows.holds(ids)
        ids, weights = ids[is_stored], weights[is_stored]
        self._weights[self.rows.slots(ids)] = weights
        self._largest = max(self._largest, float(weights.max(initial=0)))
        for tree in self._trees.values():
            tree.changed.append(ids)
        self._trees = {span: tree for span, tree in self._trees.items() if len(tree.changed) <= _MOST_WRITES}

    def clear(self) -> None:
        self._trees = {}
        self._largest = 1.0
        self._admitted = self.rows.oldest * self.rows.num_envs

    def state(self) -> State:
        weights = self._weights[self.rows.slots(self.rows.ids)]
        return {"weights": weights, "largest": self._largest, "admitted": self._admitted}

    def load_state(self, state: State) -> None:
        self.clear()
        self._weights[self.rows.slots(self.rows.ids)] = state["weights"]
        self._largest, self._admitted = float(state["largest"]), int(state["admitted"])

    def _admit(self) -> None:
        """Give the rows that came since the last time the largest weight so far."""
        oldest, end = self.rows.oldest * self.rows.num_envs, self.rows.end * self.rows.num_envs
        self._weights[self.rows.slots(np.arange(max(self._admitted, oldest), end))] = self._largest
        self._admitted = end

    def _weigh(self, priorities: Array) -> Array:
        if not np.isfinite(priorities).all():
            raise TrainingError(
                "The algorithm wrote back priorities that are infinite or not numbers.",
                "Lower the learning rate or clip gradients: its errors have grown out of bounds.",
            )
        weights = (np.abs(priorities.astype(np.float64)) + self.config.epsilon) ** self.config.alpha
        return np.clip(weights, _SMALLEST, _LARGEST).astype(np.float32)


class LegalTree:
    """The weights of all anchors that are legal for one kind of sample, up to date whenever it is refreshed."""

    def __init__(self, rows: ObservedColumns, span: Span) -> None:
        self.rows = rows
        self.span = span
        self.sums = SumTree(rows.capacity_rows)
        self.changed: list[Array] = []
        """Ids whose weights were written since the last time."""
        self._oldest = self._settled = rows.oldest
        """The oldest step of the last time, and the first one whose legality later rows may still change."""

    def refresh(self, weights: Array) -> SumTree:
        """Take in what came, went and was written since the last time, all at once; ``weights`` lie by slot."""
        if self._oldest < self.rows.oldest:
            self._drop()
        ids = self._doubtful()
        slots = self.rows.slots(ids)
        self.sums.write(slots, np.where(find_legal(self.rows, ids, self.span), weights[slots], 0))
        self._settled = max(self._settled, self.rows.end - self.span.after)
        self.changed = []
        return self.sums

    def _drop(self) -> None:
        """Empty the slots of rows that went, and look again at those that may have needed them."""
        rows, span = self.rows, self.span
        gone = self._ids(max(self._oldest, rows.oldest - rows.capacity_steps), rows.oldest)
        self.sums.write(rows.slots(gone), np.zeros(len(gone)))
        self.changed.append(self._ids(rows.oldest, min(rows.oldest + span.before + span.history, rows.end)))
        self._oldest = rows.oldest
        self._settled = max(self._settled, rows.oldest)

    def _doubtful(self) -> Array:
        """All stored ids whose weight or legality may have changed, each once."""
        ids = np.concatenate([*self.changed, self._ids(self._settled, self.rows.end)])
        return np.unique(ids[self.rows.holds(ids)])

    def _ids(self, begin: int, end: int) -> Array:
        return np.arange(begin * self.rows.num_envs, end * self.rows.num_envs)
