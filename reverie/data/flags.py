"""Two bytes per stored row that say how it may lie in a sample, so that drawing looks at one column instead of four.

They follow from the rows and are no state: they catch up, all new rows at once, when somebody asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reverie.core.types import Array

if TYPE_CHECKING:
    from reverie.data.columns import ObservedColumns

VALID, FIRST, LAST = 1, 2, 4
"""The row counts; it starts an episode; it ends one."""
ROW_BYTES = 2


class RowFlags:
    """The flags of all rows, by place in the ring."""

    def __init__(self, rows: ObservedColumns) -> None:
        self._rows = rows
        self.clear()

    def clear(self) -> None:
        self._flags: Array = np.empty(0, np.uint8)
        self._is_reached: Array = np.empty(0, bool)
        self._end = 0
        """The vector step behind the last one whose flags are known."""

    def take(self, places: Array) -> Array:
        """Flags at places; arbitrary where no row is stored."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._flags.take(places)

    def take_reached(self, places: Array) -> Array:
        """Whether a step within an episode leads to the rows at places, if the ones before them are stored, too."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._is_reached.take(places)

    def _catch_up(self) -> None:
        rows = self._rows
        if len(self._flags) == 0:
            self._flags = np.zeros(rows.capacity_rows, np.uint8)
            self._is_reached = np.zeros(rows.capacity_rows, bool)
        for places in rows.slices(max(self._end, rows.oldest), rows.end):
            flags = rows.column("valid", places).view(np.uint8) * np.uint8(VALID)
            flags |= rows.column("is_first", places).view(np.uint8) * np.uint8(FIRST)
            last = rows.column("terminated", places) | rows.column("truncated", places)
            flags |= last.view(np.uint8) * np.uint8(LAST)
            self._flags[places] = flags
            before = self._flags[places.start - rows.num_envs : places.start or None]  # the ring's end, at its start
            before = np.concatenate([before, flags[: -rows.num_envs]])
            self._is_reached[places] = leads_on(before) & follows(flags)
        self._end = rows.end


def leads_on(flags: Array) -> Array:
    """Where rows count and do not end their episode: a step leads out of them, if the next row follows."""
    return (flags & (VALID | LAST)) == VALID


def follows(flags: Array) -> Array:
    """Where rows count and do not start an episode: a step leads into them, if the row before leads on."""
    return (flags & (VALID | FIRST)) == VALID
