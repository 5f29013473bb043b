"""The JSONL files of a run folder. They are the source of truth: every other sink can be rebuilt from them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from reverie.core.errors import RunError
from reverie.store import documents

ALERTS = ("alerts", "machine_alerts")
KINDS = ("metrics", "scores", "machine", *ALERTS)


class DamagedLog(RunError, ValueError):
    """A log file with damaged lines. Callers that do not need the log catch this."""


class JsonlSink:
    """Writes one file per kind: ``metrics.jsonl``, ``scores.jsonl``, ``machine.jsonl``, ``alerts.jsonl`` ..."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, TextIO] = {kind: (folder / f"{kind}.jsonl").open("a", encoding="utf-8") for kind in KINDS}

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in self.files:  # media records are for other sinks
            self.files[kind].write(json.dumps(record) + "\n")
        if kind == "metrics":  # lines are rare, and `tail -f` should show them at once
            self.files[kind].flush()

    def write_table(self, kind: str, columns: Mapping[str, Sequence[float]]) -> None:
        """Write many records of numbers. The lines are those of :meth:`write`, but the encoder is called only once."""
        records = list(zip(*columns.values(), strict=True))
        numbers = json.dumps([number for record in records for number in record])[1:-1].split(", ")
        self.files[kind].write(_line_of_numbers(tuple(columns)) * len(records) % tuple(numbers))

    def sync(self) -> dict[str, int]:
        """Flush everything to disk. Returns the sizes of the files in bytes."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {kind: os.fstat(file.fileno()).st_size for kind, file in self.files.items()}

    def close(self) -> None:
        for file in self.files.values():
            file.close()


@cache
def _line_of_numbers(keys: tuple[str, ...]) -> str:
    """The line of a record with these keys, with ``%s`` for every number."""
    return "{" + ", ".join(json.dumps(key).replace("%", "%%") + ": %s" for key in keys) + "}\n"


def truncate_logs(folder: Path, sizes: Mapping[str, int]) -> None:
    """Drop the records after a checkpoint. The resumed run writes them again."""
    for kind in KINDS:
        path = folder / f"{kind}.jsonl"
        if path.exists() and path.stat().st_size > sizes.get(kind, 0):
            os.truncate(path, sizes.get(kind, 0))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a file. An incomplete last line, left by a crash, is skipped. Other damage raises DamagedLog."""
    try:
        records = list(documents.read_lines(path))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DamagedLog(f"{path} cannot be read: {error}.", "Remove the damaged lines.") from error
    if not all(isinstance(record, dict) for record in records):
        raise DamagedLog(f"{path} cannot be read: some lines are not JSON objects.", "Remove those lines.")
    return records
