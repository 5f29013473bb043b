"""Prioritised sampling: Schaul et al. 2016, "Prioritized experience replay", in its proportional form.

A row is drawn in proportion to its weight, ``(|priority| + epsilon) ** alpha``. New rows get the largest weight so far.
Two departures from the paper: the samples of a batch are independent (the paper draws one from each of B equal ranges),
so that mixing with other samplers is exact, and ``beta`` grows with the rows added, the only clock that a buffer has.

The usual sum tree holds every row, and illegal samples are redrawn or served anyway. Here a tree holds only the anchors
that are legal for one kind of sample: an anchor enters when all rows of its sample are stored and leaves before one of
them is dropped. Only weights are saved, trees are rebuilt from them.
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
"""Bounds of weights. 0 marks illegal anchors."""
_MAX_PENDING_WRITES = 1000
"""A tree with more pending writes is deleted: rebuilding it is no slower than updating it."""


class PrioritisedSampler:
    """Draws rows with large priorities more often."""

    class Config(ComponentConfig):
        """Settings of prioritised sampling."""

        kind: str = "prioritised"
        """Rows with large priorities more often, for algorithms that report priorities."""
        alpha: float = Field(0.6, ge=0, le=1)
        """Exponent of priorities: 0 samples uniformly, 1 in proportion to priorities."""
        beta_start: float = Field(0.4, ge=0, le=1)
        """Exponent of importance weights at the start: 0 corrects none of the sampling bias, 1 all of it."""
        beta_end: float = Field(1.0, ge=0, le=1)
        """Exponent of importance weights after beta_rows."""
        beta_rows: int | None = Field(None, ge=1)
        """Rows over all envs until beta_end is reached. Empty: the run's env steps, fixed when the run is created.
        A run without a budget of env steps uses beta_end from the start."""
        epsilon: float = Field(1e-6, gt=0)
        """Added to every priority, so that every row can be drawn."""

    uses_priorities = True

    def __init__(self, config: Config, rows: ObservedColumns) -> None:
        self.config = config
        self.rows = rows
        self._weights = np.zeros(rows.capacity_rows, np.float32)  # by slot
        self._trees: dict[Span, LegalTree] = {}
        self._largest = 1.0
        self._admitted = rows.oldest * rows.num_envs
        """First id without a weight."""

    @staticmethod
    def row_bytes(config: ComponentConfig) -> int:
        """A weight and a leaf of one tree. Every further kind of sample needs another tree."""
        return np.dtype(np.float32).itemsize + SumTree.ROW_BYTES

    @property
    def beta(self) -> float:
        progress = min(1.0, self.rows.end * self.rows.num_envs / (self.config.beta_rows or 1))
        return self.config.beta_start + progress * (self.config.beta_end - self.config.beta_start)

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        """Samples in proportion to their weights, with importance weights scaled to a maximum of 1."""
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
        self._trees = {span: tree for span, tree in self._trees.items() if len(tree.changed) <= _MAX_PENDING_WRITES}

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
        """Give new rows the largest weight so far."""
        oldest, end = self.rows.oldest * self.rows.num_envs, self.rows.end * self.rows.num_envs
        self._weights[self.rows.slots(np.arange(max(self._admitted, oldest), end))] = self._largest
        self._admitted = end

    def _weigh(self, priorities: Array) -> Array:
        if not np.isfinite(priorities).all():
            raise TrainingError(
                "The algorithm wrote back priorities that are NaN or infinite.",
                "Its errors diverge: lower the learning rate or clip gradients.",
            )
        weights = (np.abs(priorities.astype(np.float64)) + self.config.epsilon) ** self.config.alpha
        return np.clip(weights, _SMALLEST, _LARGEST).astype(np.float32)


class LegalTree:
    """Sum tree over the weights of all anchors that are legal for one kind of sample."""

    def __init__(self, rows: ObservedColumns, span: Span) -> None:
        self.rows = rows
        self.span = span
        self.sums = SumTree(rows.capacity_rows)
        self.changed: list[Array] = []
        """Ids whose weights changed since the last refresh."""
        self._oldest = self._settled = rows.oldest
        """Oldest vector step at the last refresh, and the first step whose legality new rows may still change."""

    def refresh(self, weights: Array) -> SumTree:
        """Apply all inserts, evictions and priority changes since the last call. ``weights`` is indexed by slot."""
        if self._oldest < self.rows.oldest:
            self._remove_dropped()
        ids = self._outdated_ids()
        slots = self.rows.slots(ids)
        self.sums.write(slots, np.where(find_legal(self.rows, ids, self.span), weights[slots], 0))
        self._settled = max(self._settled, self.rows.end - self.span.after)
        self.changed = []
        return self.sums

    def _remove_dropped(self) -> None:
        """Set the weights of dropped rows to 0 and recheck the anchors whose samples contained them."""
        rows, span = self.rows, self.span
        dropped = self._ids(max(self._oldest, rows.oldest - rows.capacity_steps), rows.oldest)
        self.sums.write(rows.slots(dropped), np.zeros(len(dropped)))
        self.changed.append(self._ids(rows.oldest, min(rows.oldest + span.before + span.history, rows.end)))
        self._oldest = rows.oldest
        self._settled = max(self._settled, rows.oldest)

    def _outdated_ids(self) -> Array:
        """All stored ids whose weight or legality may have changed, without repeats."""
        ids = np.concatenate([*self.changed, self._ids(self._settled, self.rows.end)])
        return np.unique(ids[self.rows.holds(ids)])

    def _ids(self, begin: int, end: int) -> Array:
        return np.arange(begin * self.rows.num_envs, end * self.rows.num_envs)
