"""How many steps before each stored row its episode began: what stacks of frames have to know.

Like the flags (:mod:`reverie.data.flags`) they follow from the rows, are no state, and catch up when somebody asks, so
that a buffer without stacks never pays for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reverie.core.types import Array

if TYPE_CHECKING:
    from reverie.data.columns import ObservedColumns

OLDEST = 127
"""Ages stop here; so old is also what was stored before anybody knows when its episode began."""
ROW_BYTES = 1


class EpisodeAges:
    """The ages of all rows within their episodes, by place in the ring."""

    def __init__(self, rows: ObservedColumns) -> None:
        self._rows = rows
        self.clear()

    def clear(self) -> None:
        self._ages: Array = np.empty(0, np.int8)
        self._end = 0
        """The vector step behind the last one whose ages are known."""

    def take(self, places: Array) -> Array:
        """Ages at places; arbitrary where no row is stored."""
        if self._end != self._rows.end:
            self._catch_up()
        return self._ages.take(places)

    def _catch_up(self) -> None:
        rows = self._rows
        if len(self._ages) == 0:
            self._ages = np.zeros(rows.capacity_rows, np.int8)
        begin = max(self._end, rows.oldest)
        age = self._before(begin)
        for places in rows.slices(begin, rows.end):
            is_first = rows.column("is_first", places).reshape(-1, rows.num_envs)
            step = np.arange(len(is_first))[:, None]
            start = np.maximum.accumulate(np.where(is_first, step, -1 - age), axis=0)
            ages = np.minimum(step - start, OLDEST)
            self._ages[places] = ages.reshape(-1)
            age = ages[-1]
        self._end = rows.end

    def _before(self, step: int) -> Array:
        """The ages of the rows before this vector step."""
        rows = self._rows
        if self._end <= rows.oldest:
            return np.full(rows.num_envs, OLDEST)
        places = rows.slices(step - 1, step)[0]
        return self._ages[places].astype(np.int64)
