"""Where records go. JSONL in the run folder is the truth; everything else can be rebuilt from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from reverie.core.errors import RunError
from reverie.store import documents

ALERTS = ("alerts", "machine_alerts")
KINDS = ("metrics", "scores", "machine", *ALERTS)


class DamagedLog(RunError, ValueError):
    """A log whose lines are not what was written; whoever can do without them goes on."""


class JsonlSink:
    """A file per kind in a run folder: ``metrics.jsonl``, ``scores.jsonl``, ``machine.jsonl``, ``alerts.jsonl`` ..."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, TextIO] = {kind: (folder / f"{kind}.jsonl").open("a", encoding="utf-8") for kind in KINDS}

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in self.files:  # pictures are for other sinks
            self.files[kind].write(json.dumps(record) + "\n")
        if kind == "metrics":  # a line every so many steps: whoever follows the file sees it at once
            self.files[kind].flush()

    def sync(self) -> dict[str, int]:
        """Put everything on the disk; the sizes of the files in bytes."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {kind: os.fstat(file.fileno()).st_size for kind, file in self.files.items()}

    def close(self) -> None:
        for file in self.files.values():
            file.close()


def cut_back(folder: Path, sizes: Mapping[str, int]) -> None:
    """Drop what was written after a checkpoint: the resumed run will write it again."""
    for kind in KINDS:
        path = folder / f"{kind}.jsonl"
        if path.exists() and path.stat().st_size > sizes.get(kind, 0):
            os.truncate(path, sizes.get(kind, 0))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a file; a last line that a crash cut short is left out. DamagedLog if others are."""
    try:
        records = list(documents.read_lines(path))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DamagedLog(f"{path} cannot be read: {error}.", "Remove the damaged lines.") from error
    if not all(isinstance(record, dict) for record in records):
        raise DamagedLog(f"{path} cannot be read: it has lines that are no mappings.", "Remove those lines.")
    return records
