"""Columns of stored rows: a ring of observed values that never change.

Each column is one flat ring array, so sampling costs one ``take`` per column, however many rows are stored. A row's id
is ``vector step * num_envs + env`` and is never reused. Its slot is the id modulo the size of the ring.

Checkpoints save the ring in chunks. A full chunk is one :class:`Sealed` that shares the ring's memory. Rows are dropped
in whole chunks, and a chunk that a checkpoint may still use gets its own copy before its first slot is overwritten. So
a Sealed never changes, memory is not doubled, and a checkpoint writes only new chunks.

With a store, wide columns are kept in files (:mod:`reverie.data.file_columns`). Rows, ids and chunks are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reverie.core.errors import RunError, TrainingError
from reverie.core.types import Array, Row, Sealed, State
from reverie.core.wording import count
from reverie.data.derived_columns import EpisodeFlags, EpisodeSteps
from reverie.data.episode_index import EpisodeBounds, EpisodeIndex
from reverie.data.file_columns import WIDE_BYTES, ChunkStore, FileColumns


class ObservedColumns:
    """The newest rows of ``num_envs`` envs, in ``num_chunks`` chunks of ``chunk_steps`` vector steps."""

    def __init__(self, num_envs: int, chunk_steps: int, num_chunks: int, store: ChunkStore | None = None) -> None:
        self.num_envs = num_envs
        self.chunk_steps = chunk_steps
        self.num_chunks = num_chunks
        self.capacity_steps = chunk_steps * num_chunks
        self.capacity_rows = self.capacity_steps * num_envs
        self.oldest = 0
        """First vector step that is still stored."""
        self.end = 0
        """One past the newest vector step."""
        self.flags = EpisodeFlags(self)
        self.episode_steps = EpisodeSteps(self)
        self.episodes = EpisodeIndex(self)
        self.bounds = EpisodeBounds(self)
        self._store = store
        self._examples: Row = {}
        """Empty arrays (0, ...) with the order, shapes and dtypes of the columns."""
        self._columns: Row = {}
        self._wide: FileColumns | None = None
        self._sealed: dict[int, Sealed] = {}

    def __len__(self) -> int:
        """Stored rows, over all envs."""
        return (self.end - self.oldest) * self.num_envs

    @property
    def _chunk_rows(self) -> int:
        return self.chunk_steps * self.num_envs

    @property
    def newest(self) -> int:
        """The newest vector step."""
        return self.end - 1

    @property
    def keys(self) -> list[str]:
        """Names of the columns. Empty before the first row."""
        return list(self._examples)

    @property
    def ids(self) -> Array:
        """Ids of all stored rows, oldest first."""
        return np.arange(self.oldest * self.num_envs, self.end * self.num_envs)

    @property
    def row_bytes(self) -> int:
        """Memory per row, without columns in files. 0 before the first row."""
        return sum(column[:1].nbytes for column in self._columns.values())

    @property
    def free_steps(self) -> int:
        """Vector steps that still fit into the growing chunk, at least 1."""
        return self.chunk_steps - self.end % self.chunk_steps

    def append(self, row: Row, steps: int = 1) -> slice | None:
        """Store the rows (steps * N, ...) of up to ``free_steps`` vector steps.

        Returns the slots of the chunk that was dropped to make room, if one was.
        """
        if not self._examples:
            self._allocate({key: np.asarray(value) for key, value in row.items()})
        values = self._checked(row, steps)
        dropped = self._drop_oldest() if self.end - self.oldest == self.capacity_steps else None
        begin = self.end * self.num_envs % self.capacity_rows
        for key, column in self._columns.items():
            column[begin : begin + steps * self.num_envs] = values[key]
        self.end += steps
        if self._wide is not None:
            self._wide.fill(begin % self._chunk_rows, values)
            if self.end % self.chunk_steps == 0:
                self._write_chunk(self.end // self.chunk_steps - 1)
        return dropped

    def holds(self, ids: Array) -> Array:
        """Whether each row is stored: already added and not yet dropped."""
        return np.asarray((ids >= self.oldest * self.num_envs) & (ids < self.end * self.num_envs))

    def slots(self, ids: Array) -> Array:
        return np.asarray(ids % self.capacity_rows)

    def ids_at(self, slots: Array) -> Array:
        """Inverse of ``slots``. Undefined for empty slots."""
        first = self.oldest * self.num_envs
        return np.asarray(first + (slots - first) % self.capacity_rows)

    def column(self, key: str, slots: slice) -> Array:
        """A slice of a column in memory. Do not write to it."""
        return self._columns[key][slots]

    def gather(self, ids: Array, keys: Iterable[str] | None = None) -> Row:
        """Rows by id, with the leading axes of ``ids``. Undefined for ids that are not stored."""
        return self.take_rows(self.slots(ids), self._examples if keys is None else keys)

    def take_rows(self, slots: Array, keys: Iterable[str]) -> Row:
        """Several columns at ``slots``."""
        if self._wide is not None:
            return {key: self.take(key, slots) for key in keys}
        columns = self._columns
        return {key: columns[key].take(slots, 0) for key in keys}  # faster than calling self.take for each column

    def take(self, key: str, slots: Array) -> Array:
        """One column at ``slots``."""
        if self._wide is not None and key not in self._columns:
            return self._wide.take(key, slots)
        return self._columns[key].take(slots, axis=0)

    def chunks(self) -> dict[int, slice]:
        """Slots of each chunk by its number, oldest first. The growing chunk has only its filled slots."""
        found = {number: self._chunk(number) for number in self._full()}
        return {**found, self.end // self.chunk_steps: self._tail()} if self.end % self.chunk_steps else found

    def slices(self, begin: int, end: int) -> list[slice]:
        """Slots of the vector steps in [begin, end): one slice, or two where the ring wraps around."""
        first, size = begin * self.num_envs % self.capacity_rows, (end - begin) * self.num_envs
        room = self.capacity_rows - first
        return [slice(first, first + size)] if size <= room else [slice(first, None), slice(0, size - room)]

    def clear(self) -> None:
        """Drop all rows. Ids are not reused."""
        self._examples = {}
        self._columns = {}  # released, not overwritten: saved chunks keep their content
        self._sealed = {}
        if self._wide is not None:
            self._wide.clear()
        self._wide = None
        self.flags.clear()
        self.episode_steps.clear()
        self.episodes.clear()
        self.bounds.clear()
        self.oldest = self.end = -(-self.end // self.chunk_steps) * self.chunk_steps

    def state(self) -> State:
        """A full chunk is the same Sealed in every state, the growing chunk is a copy."""
        is_growing = self.end % self.chunk_steps > 0
        tail = {key: values.copy() for key, values in self._views(self._tail()).items()} if is_growing else {}
        return {
            "num_envs": self.num_envs, "chunk_steps": self.chunk_steps, "oldest": self.oldest, "end": self.end,
            "keys": self.keys, "chunks": [self._share(number) for number in self._full()], "tail": tail,
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self._check_fits(state)
        self.clear()
        self.oldest, self.end = int(state["oldest"]), int(state["end"])
        chunks: list[Sealed] = state["chunks"]
        if len(self):
            self._allocate(_example_rows(state))
        for number, saved in enumerate(chunks, self.oldest // self.chunk_steps):
            self._load_chunk(number, saved)
        for key, values in self._views(self._tail()).items() if state["tail"] else ():
            values[:] = state["tail"][key]

    def _allocate(self, rows: Row) -> None:
        """Allocate rings for rows like these. The system provides the memory only as it is filled."""
        self._examples = {key: values[:0] for key, values in rows.items()}
        wide = {key: values for key, values in rows.items() if self._store and values[:1].nbytes > WIDE_BYTES}
        try:
            self._columns = {
                key: np.empty((self.capacity_rows, *values.shape[1:]), values.dtype)
                for key, values in rows.items()
                if key not in wide
            }
            if self._store is not None and wide:
                self._wide = FileColumns(self._store, self._chunk_rows, wide)
        except MemoryError as error:
            needed = sum(values[:1].nbytes for values in rows.values()) * self.capacity_rows
            raise TrainingError(
                f"Out of memory: a buffer of {self.capacity_rows:,} rows needs {needed / 1e9:.1f} GB.",
                "Lower the buffer's capacity, set its storage to disk, or make the observations smaller.",
            ) from error

    def _checked(self, row: Row, steps: int) -> Row:
        """The row as arrays. Their shapes and dtypes must equal those of the first row: numpy would cast silently."""
        if row.keys() != self._examples.keys():
            names = ", ".join(sorted(row.keys() ^ self._examples.keys()))
            raise TrainingError(
                f"Some collected rows have the columns {names}, others do not.",
                "Return the same extras from every call of the algorithm's act.",
            )
        values = {key: np.asarray(value) for key, value in row.items()}
        length = steps * self.num_envs
        for key, column in self._examples.items():
            value = values[key]
            if value.dtype != column.dtype or value.shape[1:] != column.shape[1:] or len(value) != length:
                raise TrainingError(
                    f"'{key}' was {column.dtype} of shape {(self.num_envs, *column.shape[1:])} in the first row "
                    f"and is now {value.dtype} of shape {value.shape}.",
                    "Return the same shapes and dtypes from every call of the env and of the algorithm's act.",
                )
        return values

    def _drop_oldest(self) -> slice:
        """Drop the oldest chunk and return its slots."""
        number = self.oldest // self.chunk_steps
        if self._wide is not None:
            self._wide.drop(number % self.num_chunks)
        sealed = self._sealed.pop(number, None)
        if sealed is not None:
            detach(sealed)
        self.oldest += self.chunk_steps
        return self._chunk(number)

    def _views(self, slots: slice) -> Row:
        """All columns at slots of one chunk. If there are wide columns, it must be the growing chunk."""
        begin = slots.start % self._chunk_rows
        growing = {} if self._wide is None else self._wide.growing
        return {
            key: growing[key][begin : begin + slots.stop - slots.start] if key in growing else self._columns[key][slots]
            for key in self._examples
        }

    def _share(self, number: int) -> Sealed:
        return self._seal(number) if self._wide is None else self._wide.share(number % self.num_chunks)

    def _seal(self, number: int) -> Sealed:
        if number not in self._sealed:
            views = {key: read_only(view) for key, view in self._views(self._chunk(number)).items()}
            self._sealed[number] = Sealed(_chunk_name(number), views)
        return self._sealed[number]

    def _write_chunk(self, number: int) -> None:
        assert self._wide is not None
        self._wide.seal(number % self.num_chunks, Sealed(_chunk_name(number), self._views(self._chunk(number))))

    def _load_chunk(self, number: int, saved: Sealed) -> None:
        slots, chunk = self._chunk(number), number % self.num_chunks
        if self._wide is not None:
            self._wide.seal(chunk, saved)
            self._wide.read(chunk, self._columns, {key: column[slots] for key, column in self._columns.items()})
            return
        for key, values in saved.arrays.items():
            self._columns[key][slots] = values
        # Keep the known digest: hashing a big buffer again would delay the first checkpoint after a resume.
        vars(self._seal(number))["digest"] = saved.digest

    def _full(self) -> range:
        """Numbers of the full chunks."""
        return range(self.oldest // self.chunk_steps, self.end // self.chunk_steps)

    def _chunk(self, number: int) -> slice:
        """Slots of a chunk."""
        begin = number * self._chunk_rows % self.capacity_rows
        return slice(begin, begin + self._chunk_rows)

    def _tail(self) -> slice:
        """Filled slots of the growing chunk."""
        number, steps = divmod(self.end, self.chunk_steps)
        begin = self._chunk(number).start
        return slice(begin, begin + steps * self.num_envs)

    def _check_fits(self, state: State) -> None:
        saved = (state["num_envs"], state["chunk_steps"])
        is_small = state["end"] - state["oldest"] > self.capacity_steps
        if saved != (self.num_envs, self.chunk_steps) or is_small:
            raise RunError(
                f"The saved buffer has {count(saved[0], 'env')}, chunks of {count(saved[1], 'vector step')} and "
                f"{state['end'] - state['oldest']:,} stored steps. This one has {count(self.num_envs, 'env')}, chunks "
                f"of {count(self.chunk_steps, 'vector step')} and a capacity of {self.capacity_steps:,}.",
                "Resume with the saved run's env.num_envs and its buffer's capacity and chunk_rows.",
            )


def _example_rows(state: State) -> Row:
    """The first row in the order of the columns, which files do not keep. A copy, so that its chunk can be freed."""
    rows = state["chunks"][0].arrays if state["chunks"] else state["tail"]
    return {key: rows[key][:1].copy() for key in state["keys"]}


def _chunk_name(number: int) -> str:
    return f"rows-{number:08d}"


def read_only(array: Array) -> Array:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def detach(sealed: Sealed) -> None:
    """Give a chunk its own memory, before the memory that it shares with a ring changes."""
    sealed.arrays.update({key: read_only(array.copy()) for key, array in sealed.arrays.items()})
