"""Columns computed from the stored rows: flags that decide which samples are legal, and steps since the episode began.

They are not saved. A column is computed at its first use, and at later uses extended by all new rows at once. So adding
a row costs nothing, and a buffer without frame stacks never computes episode steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reverie.core.types import Array

if TYPE_CHECKING:
    from reverie.data.columns import ObservedColumns

VALID, FIRST, LAST = 1, 2, 4
"""Bits of a row's flags: the row is valid, it starts an episode, it ends one."""


class DerivedColumns:
    """Base class: computes values for the rows that were added since the last call."""

    ROW_BYTES = 0
    """Memory per row."""

    def __init__(self, rows: ObservedColumns) -> None:
        self._rows = rows
        self.clear()

    def clear(self) -> None:
        self._end = 0
        """First vector step that is not computed yet."""
        self._is_allocated = False

    def _catch_up(self) -> None:
        rows = self._rows
        if not self._is_allocated:
            self._allocate(rows.capacity_rows)
            self._is_allocated = True
        begin = max(self._end, rows.oldest)
        is_known = begin > rows.oldest
        for slots in rows.slices(begin, rows.end):
            # The vector step before slot 0 is at the end of the ring.
            self._compute(slots, slice(slots.start - rows.num_envs, slots.start or None), is_known)
            is_known = True
        self._end = rows.end

    def _allocate(self, capacity_rows: int) -> None:
        raise NotImplementedError

    def _compute(self, slots: slice, previous: slice, is_known: bool) -> None:
        """Compute the values of ``slots``. ``previous`` are the slots of the vector step before, if it is stored."""
        raise NotImplementedError


class EpisodeFlags(DerivedColumns):
    """Two bytes per row that decide which samples are legal, so drawing samples reads one column instead of four."""

    ROW_BYTES = 2

    def take(self, slots: Array) -> Array:
        """Flags of the rows in these slots. Undefined for empty slots."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._flags.take(slots)

    def take_is_successor(self, slots: Array) -> Array:
        """Whether the row in each slot continues the episode of its env's previous row, which must be stored."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._is_successor.take(slots)

    def _allocate(self, capacity_rows: int) -> None:
        self._flags: Array = np.zeros(capacity_rows, np.uint8)
        self._is_successor: Array = np.zeros(capacity_rows, bool)

    def _compute(self, slots: slice, previous: slice, is_known: bool) -> None:
        rows = self._rows
        flags = rows.column("valid", slots).view(np.uint8) * np.uint8(VALID)
        flags |= rows.column("is_first", slots).view(np.uint8) * np.uint8(FIRST)
        last = rows.column("terminated", slots) | rows.column("truncated", slots)
        flags |= last.view(np.uint8) * np.uint8(LAST)
        self._flags[slots] = flags
        before = np.concatenate([self._flags[previous], flags[: -rows.num_envs]])
        self._is_successor[slots] = can_continue(before) & can_follow(flags)


class EpisodeSteps(DerivedColumns):
    """Number of steps from the first row of its episode to each row. Frame stacks need it."""

    ROW_BYTES = 1
    LARGEST = 127
    """Upper bound of the stored numbers, and their value in an episode whose first row was never stored."""

    def take(self, slots: Array) -> Array:
        """Episode step of the row in each slot. Undefined for empty slots."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._steps.take(slots)

    def _allocate(self, capacity_rows: int) -> None:
        self._steps: Array = np.zeros(capacity_rows, np.int8)

    def _compute(self, slots: slice, previous: slice, is_known: bool) -> None:
        is_first = self._rows.column("is_first", slots).reshape(-1, self._rows.num_envs)
        before = self._steps[previous].astype(np.int64) if is_known else np.full(self._rows.num_envs, self.LARGEST)
        time = np.arange(len(is_first))[:, None]
        start = np.maximum.accumulate(np.where(is_first, time, -1 - before), axis=0)
        self._steps[slots] = np.minimum(time - start, self.LARGEST).reshape(-1)


def can_continue(flags: Array) -> Array:
    """Whether each row is valid and does not end its episode."""
    continues: Array = (flags & (VALID | LAST)) == VALID
    return continues


def can_follow(flags: Array) -> Array:
    """Whether each row is valid and does not start an episode."""
    follows: Array = (flags & (VALID | FIRST)) == VALID
    return follows
