"""Columns of stored rows as they were observed, which never change.

Each column is one flat ring array, so a sample is one ``take`` per column however many rows there are. A row's
id is ``vector step * num_envs + env``, counted for ever; its slot is the id modulo the ring's size.

Checkpoints see the ring as chunks. A full chunk goes out as one :class:`Sealed` that shares the ring's memory.
Usually that would be a trap, since the ring comes round. Here a chunk is dropped as a whole before its first row
is overwritten, and if its Sealed was handed out, that gets a copy of its own then. So its content never changes,
memory is not doubled, and a checkpoint costs only the chunks that are new.

Given a store, wide columns lie in its files (:mod:`reverie.data.file_columns`); rows, ids and chunks are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reverie.core.errors import RunError, TrainingError
from reverie.core.types import Array, Row, Sealed, State
from reverie.core.wording import count
from reverie.data.derived_columns import EpisodeFlags, EpisodeSteps
from reverie.data.episode_index import EpisodeIndex
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
        """The first vector step that is still stored."""
        self.end = 0
        """The vector step behind the newest one."""
        self.flags = EpisodeFlags(self)
        self.episode_steps = EpisodeSteps(self)
        self.episodes = EpisodeIndex(self)
        self._store = store
        self._examples: Row = {}  # no rows of each column, in their order
        self._columns: Row = {}
        self._wide: FileColumns | None = None
        self._sealed: dict[int, Sealed] = {}

    def __len__(self) -> int:
        """Rows kept, over all envs."""
        return (self.end - self.oldest) * self.num_envs

    @property
    def _chunk_rows(self) -> int:
        return self.chunk_steps * self.num_envs

    @property
    def newest(self) -> int:
        """The last vector step that is stored."""
        return self.end - 1

    @property
    def keys(self) -> list[str]:
        """Names of the columns; none before the first row."""
        return list(self._examples)

    @property
    def ids(self) -> Array:
        """The ids of all rows kept, oldest first."""
        return np.arange(self.oldest * self.num_envs, self.end * self.num_envs)

    @property
    def row_bytes(self) -> int:
        """Memory of one row of one env, without what lies in files; 0 before the first row."""
        return sum(column[:1].nbytes for column in self._columns.values())

    @property
    def room_steps(self) -> int:
        """Vector steps that still fit into the growing chunk, at least 1."""
        return self.chunk_steps - self.end % self.chunk_steps

    def append(self, row: Row, steps: int = 1) -> slice | None:
        """Store one row of every env. Returns the slots of the rows that were dropped to make room, if any were.

        With ``steps``, up to ``room_steps``, stores the rows of that many vector steps, (steps * N, ...).
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
        """Which rows are stored: no longer to come and not yet dropped."""
        return np.asarray((ids >= self.oldest * self.num_envs) & (ids < self.end * self.num_envs))

    def slots(self, ids: Array) -> Array:
        """Where in the ring rows lie."""
        return np.asarray(ids % self.capacity_rows)

    def ids_at(self, slots: Array) -> Array:
        """The rows that lie at slots in the ring, if any do: the other way round."""
        first = self.oldest * self.num_envs
        return np.asarray(first + (slots - first) % self.capacity_rows)

    def column(self, key: str, slots: slice) -> Array:
        """A stretch of a column, to be read only."""
        return self._columns[key][slots]

    def gather(self, ids: Array, keys: Iterable[str] | None = None) -> Row:
        """Rows by id, with the leading axes of ``ids``; ids that are not stored give arbitrary values."""
        return self.take_rows(self.slots(ids), self._examples if keys is None else keys)

    def take_rows(self, slots: Array, keys: Iterable[str]) -> Row:
        """Columns at slots in the ring."""
        if self._wide is not None:
            return {key: self.take(key, slots) for key in keys}
        columns = self._columns
        return {key: columns[key].take(slots, 0) for key in keys}  # a call less per column, of which there are many

    def take(self, key: str, slots: Array) -> Array:
        """One column at slots in the ring."""
        if self._wide is not None and key not in self._columns:
            return self._wide.take(key, slots)
        return self._columns[key].take(slots, axis=0)

    def chunks(self) -> dict[int, slice]:
        """The slots of each chunk by its number, oldest first; of the growing one as far as it is filled."""
        found = {number: self._chunk(number) for number in self._full()}
        return {**found, self.end // self.chunk_steps: self._tail()} if self.end % self.chunk_steps else found

    def slices(self, begin: int, end: int) -> list[slice]:
        """The slots of the vector steps from ``begin`` up to below ``end``: one stretch, or two around the ring."""
        first, size = begin * self.num_envs % self.capacity_rows, (end - begin) * self.num_envs
        room = self.capacity_rows - first
        return [slice(first, first + size)] if size <= room else [slice(first, None), slice(0, size - room)]

    def clear(self) -> None:
        """Forget all rows. Ids go on, so that an id of before never means a row of after."""
        self._examples = {}
        self._columns = {}  # let go, not overwritten: chunks handed out before keep their content
        self._sealed = {}
        if self._wide is not None:
            self._wide.clear()
        self._wide = None
        self.flags.clear()
        self.episode_steps.clear()
        self.episodes.clear()
        self.oldest = self.end = -(-self.end // self.chunk_steps) * self.chunk_steps

    def state(self) -> State:
        """Full chunks as the same Sealed each time, the growing one as copies."""
        is_growing = self.end % self.chunk_steps > 0
        tail = {key: values.copy() for key, values in self._views(self._tail()).items()} if is_growing else {}
        return {
            "num_envs": self.num_envs, "chunk_steps": self.chunk_steps, "oldest": self.oldest, "end": self.end,
            "keys": self.keys, "chunks": [self._hand_out(number) for number in self._full()], "tail": tail,
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self._check_fits(state)
        self.clear()
        self.oldest, self.end = int(state["oldest"]), int(state["end"])
        chunks: list[Sealed] = state["chunks"]
        if len(self):
            self._allocate(_example_rows(state))
        for number, saved in enumerate(chunks, self.oldest // self.chunk_steps):
            self._take_over(number, saved)
        for key, values in self._views(self._tail()).items() if state["tail"] else ():
            values[:] = state["tail"][key]

    def _allocate(self, rows: Row) -> None:
        """Rings for rows like these; the system hands out their memory only as it is filled."""
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
                f"A buffer of {self.capacity_rows:,} rows needs {needed / 1e9:.1f} GB, more than there is.",
                "Lower the buffer's capacity, set its storage to disk, or make the observations smaller.",
            ) from error

    def _checked(self, row: Row, steps: int) -> Row:
        """The row's arrays, each as it was in the first row: a ring would cast or stretch others silently."""
        if row.keys() != self._examples.keys():
            names = ", ".join(sorted(row.keys() ^ self._examples.keys()))
            raise TrainingError(
                f"Some of the collected rows have {names} and others do not.",
                "Let the algorithm's act return the same extras at every call.",
            )
        values = {key: np.asarray(value) for key, value in row.items()}
        length = steps * self.num_envs
        for key, column in self._examples.items():
            value = values[key]
            if value.dtype != column.dtype or value.shape[1:] != column.shape[1:] or len(value) != length:
                raise TrainingError(
                    f"'{key}' was {column.dtype} of shape {(self.num_envs, *column.shape[1:])} in the first row "
                    f"and is now {value.dtype} of shape {value.shape}.",
                    "Let the env and the algorithm's act give the same shapes and types at every call.",
                )
        return values

    def _drop_oldest(self) -> slice:
        """Make room for a chunk; what was handed out of it gets its own memory first."""
        number = self.oldest // self.chunk_steps
        if self._wide is not None:
            self._wide.drop(number % self.num_chunks)
        sealed = self._sealed.pop(number, None)
        if sealed is not None:
            sealed.arrays.update({key: read_only(array.copy()) for key, array in sealed.arrays.items()})
        self.oldest += self.chunk_steps
        return self._chunk(number)

    def _views(self, slots: slice) -> Row:
        """The columns at slots of one chunk; of wide columns, it must be the one that is being filled."""
        begin = slots.start % self._chunk_rows
        growing = {} if self._wide is None else self._wide.growing
        return {
            key: growing[key][begin : begin + slots.stop - slots.start] if key in growing else self._columns[key][slots]
            for key in self._examples
        }

    def _hand_out(self, number: int) -> Sealed:
        return self._seal(number) if self._wide is None else self._wide.hand_out(number % self.num_chunks)

    def _seal(self, number: int) -> Sealed:
        if number not in self._sealed:
            views = {key: read_only(view) for key, view in self._views(self._chunk(number)).items()}
            self._sealed[number] = Sealed(_chunk_name(number), views)
        return self._sealed[number]

    def _write_chunk(self, number: int) -> None:
        assert self._wide is not None
        self._wide.seal(number % self.num_chunks, Sealed(_chunk_name(number), self._views(self._chunk(number))))

    def _take_over(self, number: int, saved: Sealed) -> None:
        """A chunk out of a checkpoint; at no time is more than one of them in memory beside the ring."""
        slots, chunk = self._chunk(number), number % self.num_chunks
        if self._wide is not None:
            self._wide.seal(chunk, saved)
            self._wide.read(chunk, self._columns, {key: column[slots] for key, column in self._columns.items()})
            return
        for key, values in saved.arrays.items():
            self._columns[key][slots] = values
        # Taken over: hashing a big buffer again would delay the first checkpoint after a resume.
        vars(self._seal(number))["digest"] = saved.digest

    def _full(self) -> range:
        """The numbers of the chunks that are full."""
        return range(self.oldest // self.chunk_steps, self.end // self.chunk_steps)

    def _chunk(self, number: int) -> slice:
        """The slots of a chunk."""
        begin = number * self._chunk_rows % self.capacity_rows
        return slice(begin, begin + self._chunk_rows)

    def _tail(self) -> slice:
        """The slots of the chunk that is growing, as far as they are filled."""
        number, steps = divmod(self.end, self.chunk_steps)
        begin = self._chunk(number).start
        return slice(begin, begin + steps * self.num_envs)

    def _check_fits(self, state: State) -> None:
        saved = (state["num_envs"], state["chunk_steps"])
        is_small = state["end"] - state["oldest"] > self.capacity_steps
        if saved != (self.num_envs, self.chunk_steps) or is_small:
            raise RunError(
                f"The saved buffer has chunks of {count(saved[1], 'vector step')} of {count(saved[0], 'env')}, "
                f"this one {self.capacity_steps} in chunks of {self.chunk_steps} of {count(self.num_envs, 'env')}.",
                "Resume with the env.num_envs and the buffer's capacity and chunk_rows of the saved run.",
            )


def _example_rows(state: State) -> Row:
    """The first row in the columns' order, which files do not keep; a copy, which does not hold on to its chunk."""
    rows = state["chunks"][0].arrays if state["chunks"] else state["tail"]
    return {key: rows[key][:1].copy() for key in state["keys"]}


def _chunk_name(number: int) -> str:
    return f"rows-{number:08d}"


def read_only(array: Array) -> Array:
    """The same memory, which nobody writes to through this array."""
    view = array.view()
    view.flags.writeable = False
    return view
