"""An index of the complete episodes among the stored rows, and the first and last stored row of any episode."""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array
from reverie.data.derived_columns import FIRST, LAST, VALID, DerivedColumns

_UNKNOWN = -1
_ENV_SHIFT = 40
"""Bits of a vector step in the sort key of a row."""


class EpisodeIndex(DerivedColumns):
    """First row and length of every complete episode, in the order in which the episodes ended.

    An episode is complete if all its rows are stored and valid, from the first row to the final one. The index is built
    at its first use and then extended by new rows. It is not saved.
    """

    _first_ids: Array
    _lengths: Array

    def find(self) -> tuple[Array, Array]:
        """Ids of the first rows (E,) and numbers of rows (E,) of the complete episodes."""
        if self._end != self._rows.end:
            self._catch_up()
            is_stored = self._rows.holds(self._first_ids)
            self._first_ids, self._lengths = self._first_ids[is_stored], self._lengths[is_stored]
        return self._first_ids, self._lengths

    def clear(self) -> None:
        super().clear()
        self._first_ids = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)

    def _allocate(self, capacity_rows: int) -> None:
        self._start = np.full(self._rows.num_envs, _UNKNOWN)
        """Vector step at which each env's current episode started."""

    def _compute(self, slots: slice, previous: slice, is_known: bool) -> None:
        num_envs = self._rows.num_envs
        indices = np.arange(*slots.indices(self._rows.capacity_rows))
        flags = self._rows.flags.take(indices).reshape(-1, num_envs)
        is_successor = self._rows.flags.take_is_successor(indices).reshape(-1, num_envs)
        begin = int(self._rows.ids_at(indices[:1])[0]) // num_envs
        starts = self._find_starts(flags, is_successor, begin, is_known)
        is_end = (flags & (VALID | LAST) == VALID | LAST) & (starts != _UNKNOWN)
        times, envs = np.nonzero(is_end)  # ordered by time
        first_steps = starts[times, envs]
        self._first_ids = np.concatenate([self._first_ids, first_steps * num_envs + envs])
        self._lengths = np.concatenate([self._lengths, begin + times + 1 - first_steps])
        self._start = starts[-1]

    def _find_starts(self, flags: Array, is_successor: Array, begin: int, is_known: bool) -> Array:
        """Vector step at which the episode of each row (T, N) started, ``_UNKNOWN`` if a row since then is missing."""
        before = self._start if is_known else np.full(self._rows.num_envs, _UNKNOWN)
        steps = np.arange(begin, begin + len(flags))[:, None]
        is_start = flags & (VALID | FIRST) == VALID | FIRST
        # The newest row up to each one that starts an episode or breaks one off.
        boundary = np.maximum.accumulate(np.where(is_start | ~is_successor, steps, _UNKNOWN), axis=0)
        is_start_there = np.take_along_axis(is_start, np.maximum(boundary - begin, 0), axis=0)
        starts: Array = np.where(boundary == _UNKNOWN, before, np.where(is_start_there, boundary, _UNKNOWN))
        return starts


class EpisodeBounds(DerivedColumns):
    """First and last stored row of the episode of any row, also of an episode that still runs.

    A sorted list of the rows that continue no episode takes little memory, and one binary search answers for a batch.
    """

    _starts: Array
    """Rows that do not continue the previous row's episode, as sort keys: the env, then the vector step."""

    def find(self, ids: Array) -> tuple[Array, Array]:
        """Ids of the first and last stored row of the episodes of these stored rows."""
        rows = self._rows
        if self._end != rows.end:
            self._catch_up()
        steps, envs = np.divmod(ids, rows.num_envs)
        next_one = np.searchsorted(self._starts, _sort_keys(envs, steps), side="right")
        padded = np.concatenate([[-1], self._starts, [-1]])
        is_own_start = padded[next_one] >> _ENV_SHIFT == envs
        has_next = padded[next_one + 1] >> _ENV_SHIFT == envs
        first = np.where(is_own_start, padded[next_one] - _sort_keys(envs, 0), rows.oldest)
        last = np.where(has_next, padded[next_one + 1] - _sort_keys(envs, 0), rows.end) - 1
        return np.maximum(first, rows.oldest) * rows.num_envs + envs, last * rows.num_envs + envs

    def clear(self) -> None:
        super().clear()
        self._starts = np.empty(0, np.int64)

    def _allocate(self, capacity_rows: int) -> None:
        pass

    def _compute(self, slots: slice, previous: slice, is_known: bool) -> None:
        rows = self._rows
        indices = np.arange(*slots.indices(rows.capacity_rows))
        broken = indices[~rows.flags.take_is_successor(indices)]
        if len(broken):
            steps, envs = np.divmod(rows.ids_at(broken), rows.num_envs)
            is_stored = self._starts % (1 << _ENV_SHIFT) >= rows.oldest
            self._starts = np.sort(np.concatenate([self._starts[is_stored], _sort_keys(envs, steps)]))


def _sort_keys(envs: Array, steps: Array | int) -> Array:
    return np.asarray((envs << _ENV_SHIFT) + steps)
