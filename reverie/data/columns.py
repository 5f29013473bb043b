"""Columns of stored rows: those observed, which never change, and those annotated, which updates write.

Each column is one flat ring array, so a sample is one ``take`` per column however many rows there are. A row's
id is ``vector step * num_envs + env``, counted for ever; its place in the ring is the id modulo the ring's size.

Checkpoints see the ring as chunks. A full chunk goes out as one :class:`Sealed` that shares the ring's memory.
Usually that would be a trap, since the ring comes round. Here a chunk is dropped as a whole before its first row
is overwritten, and if its Sealed was handed out, that gets a copy of its own then. So its content never changes,
memory is not doubled, and a checkpoint costs only the chunks that are new.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from reverie.core.errors import RunError, TrainingError
from reverie.core.types import Array, Row, Sealed, State
from reverie.data.flags import RowFlags


class ObservedColumns:
    """The newest rows of ``num_envs`` envs, in ``num_chunks`` chunks of ``chunk_steps`` vector steps."""

    def __init__(self, num_envs: int, chunk_steps: int, num_chunks: int) -> None:
        self.num_envs = num_envs
        self.chunk_steps = chunk_steps
        self.capacity_steps = chunk_steps * num_chunks
        self.capacity_rows = self.capacity_steps * num_envs
        self.oldest = 0
        """The first vector step that is still stored."""
        self.end = 0
        """The vector step behind the newest one."""
        self.flags = RowFlags(self)
        """What samples may lie on, by place: see :mod:`reverie.data.flags`."""
        self._columns: Row = {}
        self._sealed: dict[int, Sealed] = {}

    def __len__(self) -> int:
        """Rows kept, over all envs."""
        return (self.end - self.oldest) * self.num_envs

    @property
    def newest(self) -> int:
        """The last vector step that is stored."""
        return self.end - 1

    @property
    def keys(self) -> list[str]:
        """Names of the columns; none before the first row."""
        return list(self._columns)

    @property
    def ids(self) -> Array:
        """The ids of all rows kept, oldest first."""
        return np.arange(self.oldest * self.num_envs, self.end * self.num_envs)

    @property
    def row_bytes(self) -> int:
        """Memory of one row of one env; 0 before the first row."""
        return sum(column[:1].nbytes for column in self._columns.values())

    def append(self, row: Row) -> slice | None:
        """Store one row of every env; the places whose rows had to go for it, if any had to."""
        if not self._columns:
            self._allocate({key: np.asarray(value) for key, value in row.items()})
        values = self._checked(row)
        dropped = self._drop_oldest() if self.end - self.oldest == self.capacity_steps else None
        begin = self.end * self.num_envs % self.capacity_rows
        for key, column in self._columns.items():
            column[begin : begin + self.num_envs] = values[key]
        self.end += 1
        return dropped

    def holds(self, ids: Array) -> Array:
        """Which rows are stored: no longer to come and not yet dropped."""
        return np.asarray((ids >= self.oldest * self.num_envs) & (ids < self.end * self.num_envs))

    def places(self, ids: Array) -> Array:
        """Where in the ring rows lie."""
        return np.asarray(ids % self.capacity_rows)

    def ids_at(self, places: Array) -> Array:
        """The rows that lie at places in the ring, if any do: the other way round."""
        first = self.oldest * self.num_envs
        return np.asarray(first + (places - first) % self.capacity_rows)

    def column(self, key: str, places: slice) -> Array:
        """A stretch of a column, to be read only."""
        return self._columns[key][places]

    def gather(self, ids: Array, keys: Iterable[str] | None = None) -> Row:
        """Rows by id, with the leading axes of ``ids``; ids that are not stored give arbitrary values."""
        places = self.places(ids)
        return {key: self._columns[key].take(places, axis=0) for key in (self._columns if keys is None else keys)}

    def slices(self, begin: int, end: int) -> list[slice]:
        """The places of the vector steps from ``begin`` up to below ``end``: one stretch, or two around the ring."""
        first, size = begin * self.num_envs % self.capacity_rows, (end - begin) * self.num_envs
        room = self.capacity_rows - first
        return [slice(first, first + size)] if size <= room else [slice(first, None), slice(0, size - room)]

    def clear(self) -> None:
        """Forget all rows. Ids go on, so that an id of before never means a row of after."""
        self._columns = {}  # let go, not overwritten: chunks handed out before keep their content
        self._sealed = {}
        self.flags.clear()
        self.oldest = self.end = -(-self.end // self.chunk_steps) * self.chunk_steps

    def state(self) -> State:
        """Full chunks as the same Sealed each time, the growing one as copies."""
        full = range(self.oldest // self.chunk_steps, self.end // self.chunk_steps)
        is_growing = self.end % self.chunk_steps > 0
        tail = {key: column[self._tail()].copy() for key, column in self._columns.items()} if is_growing else {}
        return {
            "num_envs": self.num_envs, "chunk_steps": self.chunk_steps, "oldest": self.oldest, "end": self.end,
            "keys": self.keys, "chunks": [self._seal(number) for number in full], "tail": tail,
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self._check_fits(state)
        self.clear()
        self.oldest, self.end = int(state["oldest"]), int(state["end"])
        chunks: list[Sealed] = state["chunks"]
        if len(self):
            rows = chunks[0].arrays if chunks else state["tail"]
            self._allocate({key: rows[key] for key in state["keys"]})  # files have an order of their own
        for number, saved in enumerate(chunks, self.oldest // self.chunk_steps):
            self._fill(self._chunk(number), saved.arrays)
            # Taken over: hashing a big buffer again would delay the first checkpoint after a resume.
            vars(self._seal(number))["digest"] = saved.digest
        self._fill(self._tail(), state["tail"])

    def _allocate(self, rows: Row) -> None:
        """Rings for rows like these; the system hands out their memory only as it is filled."""
        try:
            self._columns = {
                key: np.empty((self.capacity_rows, *values.shape[1:]), values.dtype) for key, values in rows.items()
            }
        except MemoryError as error:
            needed = sum(values[:1].nbytes for values in rows.values()) * self.capacity_rows
            raise TrainingError(
                f"A buffer of {self.capacity_rows:,} rows needs {needed / 1e9:.1f} GB, more than there is.",
                "Lower the buffer's capacity, or make the observations smaller.",
            ) from error

    def _checked(self, row: Row) -> Row:
        """The row's arrays, each as it was in the first row: a ring would cast or stretch others silently."""
        if row.keys() != self._columns.keys():
            names = ", ".join(sorted(row.keys() ^ self._columns.keys()))
            raise TrainingError(
                f"Some of the collected rows have {names} and others do not.",
                "Let the algorithm's act return the same extras at every call.",
            )
        values = {key: np.asarray(value) for key, value in row.items()}
        for key, column in self._columns.items():
            value = values[key]
            if value.dtype != column.dtype or value.shape[1:] != column.shape[1:] or len(value) != self.num_envs:
                raise TrainingError(
                    f"'{key}' was {column.dtype} of shape {(self.num_envs, *column.shape[1:])} in the first row "
                    f"and is now {value.dtype} of shape {value.shape}.",
                    "Let the env and the algorithm's act give the same shapes and types at every call.",
                )
        return values

    def _drop_oldest(self) -> slice:
        """Make room for a chunk; what was handed out of it gets its own memory first."""
        number = self.oldest // self.chunk_steps
        sealed = self._sealed.pop(number, None)
        if sealed is not None:
            sealed.arrays.update({key: _read_only(array.copy()) for key, array in sealed.arrays.items()})
        self.oldest += self.chunk_steps
        return self._chunk(number)

    def _seal(self, number: int) -> Sealed:
        if number not in self._sealed:
            views = {key: _read_only(column[self._chunk(number)]) for key, column in self._columns.items()}
            self._sealed[number] = Sealed(f"rows-{number:08d}", views)
        return self._sealed[number]

    def _chunk(self, number: int) -> slice:
        """The places of a chunk."""
        size = self.chunk_steps * self.num_envs
        begin = number * size % self.capacity_rows
        return slice(begin, begin + size)

    def _tail(self) -> slice:
        """The places of the chunk that is growing, as far as they are filled."""
        number, steps = divmod(self.end, self.chunk_steps)
        begin = self._chunk(number).start
        return slice(begin, begin + steps * self.num_envs)

    def _fill(self, places: slice, arrays: Mapping[str, Array]) -> None:
        for key, array in arrays.items():
            self._columns[key][places] = array

    def _check_fits(self, state: State) -> None:
        saved = (state["num_envs"], state["chunk_steps"])
        is_small = state["end"] - state["oldest"] > self.capacity_steps
        if saved != (self.num_envs, self.chunk_steps) or is_small:
            raise RunError(
                f"The saved buffer has chunks of {saved[1]} vector steps of {saved[0]} envs, this one holds "
                f"{self.capacity_steps} in chunks of {self.chunk_steps} of {self.num_envs} envs.",
                "Resume with the env.num_envs and the buffer's capacity and chunk_rows of the saved run.",
            )


class AnnotationColumns:
    """Values that updates attach to stored rows, by id; 0 where nothing was written.

    Floats are kept as ``float_dtype`` and served as float32: half precision saves memory and nothing else.
    """

    def __init__(self, rows: ObservedColumns, float_dtype: str) -> None:
        self.rows = rows
        self.float_dtype = float_dtype
        self._columns: Row = {}

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
        ids = np.asarray(ids)
        is_stored = self.rows.holds(ids)
        places = self.rows.places(ids[is_stored])
        for key, given in columns.items():
            values = np.asarray(given)
            self._check(key, ids, values)
            if key not in self._columns:
                shape = (self.rows.capacity_rows, *values.shape[ids.ndim :])
                self._columns[key] = np.zeros(shape, _stored_dtype(values.dtype, self.float_dtype))
            self._columns[key][places] = self._fit(values[is_stored], self._columns[key].dtype)

    def gather(self, ids: Array) -> Row:
        places = self.rows.places(ids)
        found = {key: column.take(places, axis=0) for key, column in self._columns.items()}
        return {key: values.astype(_served_dtype(values.dtype), copy=False) for key, values in found.items()}

    def forget(self, places: slice) -> None:
        """Back to 0 where rows were dropped."""
        for column in self._columns.values():
            column[places] = 0

    def clear(self) -> None:
        self._columns = {}

    def state(self) -> State:
        places = self.rows.places(self.rows.ids)
        return {key: column.take(places, axis=0) for key, column in self._columns.items()}

    def load_state(self, state: State) -> None:
        """Load after the rows: values lie in the order of the ids kept."""
        places = self.rows.places(self.rows.ids)
        self._columns = {}
        for key, values in state.items():
            self._columns[key] = np.zeros((self.rows.capacity_rows, *values.shape[1:]), values.dtype)
            self._columns[key][places] = values

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


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
