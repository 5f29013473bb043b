"""A file with one chunk of rows, from which single rows are read.

It is the safetensors file that checkpoints share: a small JSON header with the offset of each column, then the raw
numbers. Rows are read by offset and not through a memory map. Mapped pages count as memory of the process, and reading
a truncated file through a map kills the process without a message. The page cache of the system keeps what is read
often.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError
from reverie.core.types import Array
from reverie.store import documents

_LENGTH_BYTES = 8
_LARGEST_HEADER = 1 << 20


class ChunkFile:
    """Reads rows of a chunk. The file is opened at the first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._offsets: dict[str, int] = {}
        """Offset of each column in the file."""
        self._row_bytes: dict[str, int] = {}

    def read(self, key: str, first: int, out: Array) -> None:
        """Read ``len(out)`` rows of a column, from row ``first`` on, into the contiguous array ``out``."""
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        if out.nbytes != len(out) * self._row_bytes[key]:
            raise RunError(
                f"{self.path} is damaged: rows of '{key}' have {self._row_bytes[key]} bytes, "
                f"the buffer expects {out.nbytes // max(1, len(out))}."
            )
        target, offset = out.reshape(-1).view("u1").data, self._offsets[key] + first * self._row_bytes[key]
        while target:
            count = os.preadv(self._descriptor, [target], offset)
            if count == 0:
                raise RunError(f"{self.path} is damaged: it ends in the middle of column '{key}'.")
            target, offset = target[count:], offset + count

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()

    def _open(self) -> None:
        try:
            with documents.open_file(self.path) as file:
                self._descriptor = os.dup(file.fileno())
            length = int.from_bytes(os.pread(self._descriptor, _LENGTH_BYTES, 0), "little")
            header = documents.parse_json(os.pread(self._descriptor, min(length, _LARGEST_HEADER), _LENGTH_BYTES))
            self._read_header(header, _LENGTH_BYTES + length)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is missing, but the buffer still needs its rows.") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RunError(f"{self.path} is damaged: {error}") from error

    def _read_header(self, header: dict[str, Any], data_offset: int) -> None:
        for key, entry in header.items():
            if key == "__metadata__":
                continue
            begin, end = (int(offset) for offset in entry["data_offsets"])
            rows = int(entry["shape"][0])
            self._offsets[key], self._row_bytes[key] = data_offset + begin, (end - begin) // max(1, rows)
            if math.prod(entry["shape"][1:]) and (end - begin) % max(1, rows):
                raise ValueError(f"column '{key}' has {end - begin} bytes, not a multiple of its {rows} rows")
