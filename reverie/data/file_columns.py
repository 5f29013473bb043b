"""Wide columns of stored rows: full chunks are kept in files, only the growing chunk is in memory.

A full chunk is written once, to the file that checkpoints refer to, so checkpoints copy nothing. A chunk that the ring
drops before a checkpoint refers to it is deleted here. The others are deleted with their last checkpoint
(:meth:`reverie.store.checkpoint.CheckpointFolder.tidy`).
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
"""Columns with more bytes per row are kept in files. Narrow columns need little memory, and every draw reads them."""
_MAX_OPEN_FILES = 256


class ChunkStore(Protocol):
    """Writes and reads chunks, like :class:`reverie.store.trees.SealedStore`."""

    def holds(self, sealed: Sealed) -> bool: ...

    def put(self, sealed: Sealed) -> str: ...

    def get(self, name: str) -> Sealed: ...

    def delete(self, name: str) -> None: ...

    def path(self, name: str) -> Path: ...


class FileColumns:
    """Columns in chunks. ``chunk`` is a chunk's position in the ring: its number modulo the number of chunks."""

    def __init__(self, store: ChunkStore, chunk_rows: int, examples: Row) -> None:
        self.store = store
        self.chunk_rows = chunk_rows
        self.growing = {key: np.zeros((chunk_rows, *row.shape[1:]), row.dtype) for key, row in examples.items()}
        """The columns of the growing chunk."""
        self._files: dict[int, ChunkFile] = {}
        self._names: dict[int, str] = {}
        self._saved: set[int] = set()
        """Chunks that a checkpoint may refer to."""
        self._open: dict[int, None] = {}  # chunks whose file is open, least recently used first

    def fill(self, first: int, values: Mapping[str, Array]) -> None:
        """Set rows of the growing chunk, from row ``first`` on."""
        for key, column in self.growing.items():
            column[first : first + len(values[key])] = values[key]

    def seal(self, chunk: int, sealed: Sealed) -> None:
        """Write a full chunk. If its file exists, keep that file: a checkpoint may refer to it."""
        if self.store.holds(sealed):
            self._saved.add(chunk)
        self._names[chunk] = self.store.put(sealed)
        self._files[chunk] = ChunkFile(self.store.path(self._names[chunk]))

    def share(self, chunk: int) -> Sealed:
        """A full chunk for a checkpoint."""
        self._saved.add(chunk)
        return self.store.get(self._names[chunk])

    def drop(self, chunk: int) -> None:
        """Remove a chunk, and its file unless a checkpoint may refer to it."""
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
        """One column at ``slots``. Consecutive slots are read together."""
        flat = slots.reshape(-1)
        chunks, rows = np.divmod(flat, self.chunk_rows)
        growing = self.growing[key]
        found = np.empty((len(flat), *growing.shape[1:]), growing.dtype)
        breaks = np.flatnonzero((np.diff(flat) != 1) | (np.diff(chunks) != 0)) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(flat)] if len(flat) else []):
            self._copy(key, int(chunks[begin]), int(rows[begin]), found[begin:end])
        return found.reshape(*slots.shape, *growing.shape[1:])

    def read(self, chunk: int, keys: Iterable[str], into: Mapping[str, Array]) -> None:
        """Read whole columns of a full chunk, narrow ones included."""
        for key in keys:
            self._files[chunk].read(key, 0, into[key])
        self._files[chunk].close()  # a process may not open as many files as there are chunks

    def _copy(self, key: str, chunk: int, row: int, out: Array) -> None:
        file = self._files.get(chunk)
        if file is None:
            out[:] = self.growing[key][row : row + len(out)]
            return
        file.read(key, row, out)
        self._open.pop(chunk, None)
        self._open[chunk] = None
        if len(self._open) > _MAX_OPEN_FILES:
            least_recent = next(iter(self._open))
            self._files[least_recent].close()
            del self._open[least_recent]
