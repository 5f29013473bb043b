"""Columns of values that updates attach to stored rows: latents, counts, whatever an algorithm writes back.

Checkpoints see them in chunks, as they see the rows. A chunk goes out as a :class:`Sealed` that shares the memory
kept here, so that saving needs none; whoever still holds one when a value changes gets a copy of its own first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakSet

import numpy as np

from reverie.core.errors import TrainingError
from reverie.core.types import Array, Row, Sealed, State
from reverie.data.columns import ObservedColumns, read_only


class AnnotationColumns:
    """Values that updates attach to stored rows, by id; 0 where nothing was written.

    Floats are kept as ``float_dtype`` and served as float32: half precision saves memory and nothing else.
    """

    def __init__(self, rows: ObservedColumns, float_dtype: str) -> None:
        self.rows = rows
        self.float_dtype = float_dtype
        self._columns: Row = {}
        self._handed_out: WeakSet[Sealed] = WeakSet()

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    @property
    def row_bytes(self) -> int:
        """Memory of the annotations of one row."""
        return sum(column[:1].nbytes for column in self._columns.values())

    @staticmethod
    def bytes_of(examples: Mapping[str, Array], float_dtype: str) -> int:
        """What ``row_bytes`` will be once values like these, of shape (N, ...), were written."""
        kept = [(math.prod(array.shape[1:]), _stored_dtype(array.dtype, float_dtype)) for array in examples.values()]
        return sum(size * dtype.itemsize for size, dtype in kept)

    def write(self, ids: Array, columns: Mapping[str, Array]) -> None:
        """Set values of rows. Rows no longer stored are passed over; of equal ids the last one counts."""
        self._keep_handed_out()
        ids = np.asarray(ids)
        is_stored = self.rows.holds(ids)
        slots = self.rows.slots(ids[is_stored])
        for key, given in columns.items():
            values = np.asarray(given)
            self._check(key, ids, values)
            if key not in self._columns:
                shape = (self.rows.capacity_rows, *values.shape[ids.ndim :])
                self._columns[key] = np.zeros(shape, _stored_dtype(values.dtype, self.float_dtype))
            self._columns[key][slots] = self._fit(values[is_stored], self._columns[key].dtype)

    def gather(self, ids: Array) -> Row:
        if not self._columns:
            return {}
        slots = self.rows.slots(ids)
        found = {key: column.take(slots, axis=0) for key, column in self._columns.items()}
        return {key: values.astype(_served_dtype(values.dtype), copy=False) for key, values in found.items()}

    def forget(self, slots: slice) -> None:
        """Back to 0 where rows were dropped."""
        self._keep_handed_out()
        for column in self._columns.values():
            column[slots] = 0

    def clear(self) -> None:
        self._columns = {}

    def state(self) -> State:
        chunks = self.rows.chunks() if self._columns else {}
        sealed = [Sealed(f"notes-{number:08d}", self._views(slots)) for number, slots in chunks.items()]
        self._handed_out.update(sealed)
        return {"keys": self.keys, "chunks": sealed}

    def load_state(self, state: State) -> None:
        """Load after the rows; at no time is more than one chunk in memory beside what is kept."""
        self._columns = {}
        if not isinstance(state.get("chunks"), list):  # as it was saved at first: whole columns, by the ids kept
            self._put(self.rows.slots(self.rows.ids), state, list(state))
            return
        chunks = self.rows.chunks() if state["keys"] else {}
        for slots, sealed in zip(chunks.values(), state["chunks"], strict=True):
            self._put(slots, sealed.arrays, state["keys"])

    def _put(self, slots: slice | Array, values: Mapping[str, Array], keys: list[str]) -> None:
        for key in keys:
            if key not in self._columns:
                shape = (self.rows.capacity_rows, *values[key].shape[1:])
                self._columns[key] = np.zeros(shape, values[key].dtype)
            self._columns[key][slots] = values[key]

    def _views(self, slots: slice) -> Row:
        return {key: read_only(column[slots]) for key, column in self._columns.items()}

    def _keep_handed_out(self) -> None:
        """What somebody still holds of a state keeps its values."""
        for sealed in self._handed_out:
            sealed.arrays.update({key: read_only(array.copy()) for key, array in sealed.arrays.items()})
        self._handed_out.clear()

    def _check(self, key: str, ids: Array, values: Array) -> None:
        if key in self.rows.keys or key == "id":
            raise TrainingError(
                f"The algorithm wrote back '{key}', but every row already comes with its own '{key}'.",
                "Write it back under another name.",
            )
        known = self._columns.get(key)
        shape = values.shape[ids.ndim :] if known is None else known.shape[1:]
        is_castable = known is None or np.can_cast(values.dtype, known.dtype, "same_kind")
        if values.shape != (*ids.shape, *shape) or not is_castable:
            raise TrainingError(
                f"The algorithm wrote back '{key}' as {values.dtype} of shape {values.shape}, which does not fit "
                f"{ids.size} ids and what it wrote before.",
                f"Give one value per id, here of shape {(*ids.shape, *shape)}, and the same type at every call.",
            )

    def _fit(self, values: Array, dtype: np.dtype) -> Array:
        """Numbers too big for half precision become its biggest: infinities would spoil every later loss."""
        if dtype != np.float16:
            return values
        bound = np.finfo(np.float16).max
        return np.clip(values, -bound, bound)


def _stored_dtype(dtype: np.dtype, float_dtype: str) -> np.dtype:
    return np.dtype(float_dtype) if np.issubdtype(dtype, np.floating) else dtype


def _served_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype == np.float16 else dtype
