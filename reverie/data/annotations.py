"""Annotations: columns that updates may overwrite, such as latents.

Checkpoints save them in chunks, like the rows. A chunk is a :class:`Sealed` that shares the memory of the columns, so
saving copies nothing. Before a value changes, every chunk that is still in use gets its own copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakSet

import numpy as np

from reverie.core.errors import TrainingError
from reverie.core.types import Array, Row, Sealed, State
from reverie.data.columns import ObservedColumns, detach, read_only


class AnnotationColumns:
    """Values by row id, 0 until an update writes them.

    Floats are stored as ``float_dtype`` and served as float32, so half precision only saves memory.
    """

    def __init__(self, rows: ObservedColumns, float_dtype: str) -> None:
        self.rows = rows
        self.float_dtype = float_dtype
        self._columns: Row = {}
        self._shared: WeakSet[Sealed] = WeakSet()
        """Saved chunks that still share memory with the columns."""

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    @property
    def row_bytes(self) -> int:
        """Memory per row."""
        return sum(column[:1].nbytes for column in self._columns.values())

    @staticmethod
    def bytes_of(examples: Mapping[str, Array], float_dtype: str) -> int:
        """Forecast of ``row_bytes`` from examples of the values, shape (N, ...)."""
        columns = [(math.prod(array.shape[1:]), _stored_dtype(array.dtype, float_dtype)) for array in examples.values()]
        return sum(size * dtype.itemsize for size, dtype in columns)

    def write(self, ids: Array, columns: Mapping[str, Array]) -> None:
        """Set values of rows. Ids that are no longer stored are ignored; for repeated ids the last value counts."""
        self._detach_chunks()
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

    def reset(self, slots: slice) -> None:
        """Set slots whose rows were dropped back to 0."""
        self._detach_chunks()
        for column in self._columns.values():
            column[slots] = 0

    def clear(self) -> None:
        self._columns = {}

    def state(self) -> State:
        chunks = self.rows.chunks() if self._columns else {}
        sealed = [Sealed(f"notes-{number:08d}", self._views(slots)) for number, slots in chunks.items()]
        self._shared.update(sealed)
        return {"keys": self.keys, "chunks": sealed}

    def load_state(self, state: State) -> None:
        """Load after the rows. Reads one chunk at a time, to save memory."""
        self._columns = {}
        if not isinstance(state.get("chunks"), list):  # older checkpoints: whole columns, in the order of the ids
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

    def _detach_chunks(self) -> None:
        for sealed in self._shared:
            detach(sealed)
        self._shared.clear()

    def _check(self, key: str, ids: Array, values: Array) -> None:
        if key in self.rows.keys or key == "id":
            raise TrainingError(
                f"The algorithm wrote back '{key}', but rows already have a column '{key}'.",
                "Write it back under another name.",
            )
        known = self._columns.get(key)
        shape = values.shape[ids.ndim :] if known is None else known.shape[1:]
        is_castable = known is None or np.can_cast(values.dtype, known.dtype, "same_kind")
        if values.shape != (*ids.shape, *shape) or not is_castable:
            raise TrainingError(
                f"The algorithm wrote back '{key}' as {values.dtype} of shape {values.shape}, which does not match "
                f"its {ids.size} ids or earlier values.",
                f"Give one value per id, here of shape {(*ids.shape, *shape)}, with the same dtype in every update.",
            )

    def _fit(self, values: Array, dtype: np.dtype) -> Array:
        """Clip to the range of half precision: an infinity would make every later loss infinite."""
        if dtype != np.float16:
            return values
        bound = np.finfo(np.float16).max
        return np.clip(values, -bound, bound)


def _stored_dtype(dtype: np.dtype, float_dtype: str) -> np.dtype:
    return np.dtype(float_dtype) if np.issubdtype(dtype, np.floating) else dtype


def _served_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype == np.float16 else dtype
