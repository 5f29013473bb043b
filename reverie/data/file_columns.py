"""Wide columns of stored rows whose full chunks lie in files; only the chunk that is being filled is in memory.

A full chunk is written at once and never again: as the file that checkpoints refer to, so they have nothing to copy.
A chunk that the ring drops before any checkpoint has seen it is deleted here, the others when their last checkpoint
goes (:meth:`reverie.store.checkpoint.CheckpointFolder.tidy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from reverie.core.types import Array, Row, Sealed
from reverie.data.chunk_file import ChunkFile

WIDE_BYTES = 64
"""Columns with more bytes per row than this go to files. The others are little beside them and are needed all the
time: flags are looked at for every draw."""
_MOST_OPEN = 256


class ChunkStore(Protocol):
    """Where chunks are written: :class:`reverie.store.trees.SealedStore`."""

    def holds(self, sealed: Sealed) -> bool: ...

    def put(self, sealed: Sealed) -> str: ...

    def get(self, name: str) -> Sealed: ...

    def delete(self, name: str) -> None: ...

    def path(self, name: str) -> Path: ...


class FileColumns:
    """Columns by the number of a chunk's chunk in the ring and the row in it."""

    def __init__(self, store: ChunkStore, chunk_rows: int, examples: Row) -> None:
        self.store = store
        self.chunk_rows = chunk_rows
        self.growing = {key: np.zeros((chunk_rows, *row.shape[1:]), row.dtype) for key, row in examples.items()}
        """The chunk that is being filled."""
        self._files: dict[int, ChunkFile] = {}
        self._names: dict[int, str] = {}
        self._saved: set[int] = set()
        """Slots whose chunk a checkpoint may name."""
        self._open: dict[int, None] = {}  # in the order of their last use

    def fill(self, first: int, values: Mapping[str, Array]) -> None:
        """Put rows into the growing chunk, from row ``first`` on."""
        for key, column in self.growing.items():
            column[first : first + len(values[key])] = values[key]

    def seal(self, chunk: int, sealed: Sealed) -> None:
        """Write a full chunk, or take one over that is written already: that may be named by a checkpoint."""
        if self.store.holds(sealed):
            self._saved.add(chunk)
        self._names[chunk] = self.store.put(sealed)
        self._files[chunk] = ChunkFile(self.store.path(self._names[chunk]))

    def hand_out(self, chunk: int) -> Sealed:
        """A full chunk for a checkpoint."""
        self._saved.add(chunk)
        return self.store.get(self._names[chunk])

    def drop(self, chunk: int) -> None:
        """The ring needs the chunk for new rows."""
        self._files.pop(chunk).close()
        self._open.pop(chunk, None)
        if chunk not in self._saved:
            self.store.delete(self._names[chunk])
        self._saved.discard(chunk)
        del self._names[chunk]

    def clear(self) -> None:
        for chunk in list(self._files):
            self.drop(chunk)

    def take(self, key: str, slots: Array) -> Array:
        """Rows at slots in the ring; neighbours that are asked for together are read together."""
        flat = slots.reshape(-1)
        chunks, rows = np.divmod(flat, self.chunk_rows)
        growing = self.growing[key]
        found = np.empty((len(flat), *growing.shape[1:]), growing.dtype)
        breaks = np.flatnonzero((np.diff(flat) != 1) | (np.diff(chunks) != 0)) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(flat)] if len(flat) else []):
            self._copy(key, int(chunks[begin]), int(rows[begin]), found[begin:end])
        return found.reshape(*slots.shape, *growing.shape[1:])

    def read(self, chunk: int, keys: Iterable[str], into: Mapping[str, Array]) -> None:
        """Whole columns of a full chunk, also those that are not kept here."""
        for key in keys:
            self._files[chunk].read(key, 0, into[key])
        self._files[chunk].close()  # there may be more chunks than files that can be open

    def _copy(self, key: str, chunk: int, row: int, out: Array) -> None:
        file = self._files.get(chunk)
        if file is None:
            out[:] = self.growing[key][row : row + len(out)]
            return
        file.read(key, row, out)
        self._open.pop(chunk, None)
        self._open[chunk] = None
        if len(self._open) > _MOST_OPEN:
            longest_unused = next(iter(self._open))
            self._files[longest_unused].close()
            del self._open[longest_unused]
