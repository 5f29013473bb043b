"""Fingerprints of run folders: texts that change when a run has changed.

A run is known by its folder (our files are replaced by renaming, which changes the folder's time) and its status.json.
While it has not ended, its metrics.jsonl grows in place and counts too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RECENT_NANOSECONDS = 200_000_000
"""A file that changed this recently could change again within the resolution of its time."""
SEPARATOR = "|"


class Fingerprints:
    """Takes the fingerprints of the runs in a folder. They are empty for a run that is being written just now."""

    def __init__(self, descriptor: int) -> None:
        self._folder = descriptor
        self._recent = time.time_ns() - RECENT_NANOSECONDS

    def names(self) -> list[str]:
        """The folders in the folder."""
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def whole(self, name: str) -> str:
        """The fingerprint of a run that has not been read yet."""
        parts = (name, f"{name}/status.json", f"{name}/metrics.jsonl")
        marks = [self._mark(part) for part in parts]
        return f"{marks[0]} {marks[1]}{SEPARATOR}{marks[2]}" if all(marks) else ""

    def is_equal(self, name: str, before: str, has_ended: bool) -> bool:
        """Whether the run has not changed since its fingerprint was taken."""
        base, _, metrics = before.partition(SEPARATOR)
        if base != f"{self._mark(name)} {self._mark(f'{name}/status.json')}":
            return False
        return has_ended or metrics == self._mark(f"{name}/metrics.jsonl")

    def _mark(self, path: str) -> str:
        """Inode, time and size of a file or folder. Empty if it changed just now, "-" if it does not exist."""
        try:
            status = os.stat(path, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return "-"
        return f"{status.st_ino}.{status.st_mtime_ns}.{status.st_size}" if status.st_mtime_ns < self._recent else ""


@contextmanager
def open_fingerprints(runs_dir: Path) -> Iterator[Fingerprints]:
    """OSError if the folder cannot be read."""
    descriptor = os.open(runs_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Fingerprints(descriptor)
    finally:
        os.close(descriptor)
