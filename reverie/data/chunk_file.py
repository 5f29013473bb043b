"""One chunk of stored rows in a file, of which single rows are read.

The file is a safetensors file as checkpoints share them: a small JSON table of where each column lies, then plain
numbers. Rows are read by position and not through a memory map: pages of a map count as memory of the process, and a
map of a file that was cut short ends the process without a word. What is read often stays in the system's cache.
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
_LARGEST_TABLE = 1 << 20


class ChunkFile:
    """Reads rows of a file; it is opened when first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._begin: dict[str, int] = {}
        """Where in the file each column begins."""
        self._row_bytes: dict[str, int] = {}

    def read(self, key: str, first: int, out: Array) -> None:
        """Rows from number ``first`` on into ``out``, which is contiguous and says how many."""
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        if out.nbytes != len(out) * self._row_bytes[key]:
            raise RunError(f"{self.path} is damaged: '{key}' has another size than the buffer's.")
        target, offset = memoryview(out.reshape(-1).view("u1")), self._begin[key] + first * self._row_bytes[key]
        while target:
            count = os.preadv(self._descriptor, [target], offset)
            if count == 0:
                raise RunError(f"{self.path} is damaged: it ends too early.")
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
            table = documents.parse_json(os.pread(self._descriptor, min(length, _LARGEST_TABLE), _LENGTH_BYTES))
            self._locate(table, _LENGTH_BYTES + length)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is missing, with rows that the run still needs.") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RunError(f"{self.path} is damaged: {error}") from error

    def _locate(self, table: dict[str, Any], data: int) -> None:
        for key, entry in table.items():
            if key == "__metadata__":
                continue
            begin, end = (int(offset) for offset in entry["data_offsets"])
            rows = int(entry["shape"][0])
            self._begin[key], self._row_bytes[key] = data + begin, (end - begin) // max(1, rows)
            if math.prod(entry["shape"][1:]) and (end - begin) % max(1, rows):
                raise ValueError(f"'{key}' has no whole rows")
