"""Reads the files of an untrusted run folder: sizes are limited and links are refused.

A file that cannot be read becomes a sentence in ``problems``: the report is still written and says what is missing.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from reverie.core.wording import count
from reverie.store import documents
from reverie.store.documents import LARGEST_DOCUMENT, LONGEST_LINE, Unreadable

READ_IN_FULL = 40 << 20
"""Up to this many bytes, every line of a JSONL file is parsed. Of larger files, every second, third ... line."""
ALWAYS_READ = 20_000
"""Maximum number of lines that are read because they contain ``never_skip``."""


def plain_path(run: Path, name: str) -> Path | None:
    """A regular file of the run, or None. Links are refused: they could make a report show a private file."""
    path = run
    for part in Path(name).parts:
        path = path / part
        try:
            mode = path.lstat().st_mode
        except OSError:
            return None
        if stat.S_ISLNK(mode):
            raise Unreadable(f"{name} is a symbolic link, which is not followed.")
    if not stat.S_ISREG(mode):
        raise Unreadable(f"{name} is not a regular file.")
    return path


def read_bytes(run: Path, name: str, problems: list[str], limit: int = LARGEST_DOCUMENT) -> bytes | None:
    """The content of a file. None if it is missing, or unreadable (with a sentence in ``problems``)."""
    try:
        path = plain_path(run, name)
        if path is None:
            return None
        if path.stat().st_size > limit:
            raise Unreadable(f"{name} is larger than {limit >> 20} MB and was left out.")
        return documents.read_bytes(path, limit)
    except Unreadable as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{name} cannot be read: {error.strerror}.")
    return None


def read_mapping(run: Path, name: str, problems: list[str]) -> dict[str, Any]:
    """A JSON object from a file. Empty if it is missing or damaged."""
    data = read_bytes(run, name, problems)
    if data is None:
        return {}
    try:
        value = documents.parse_json(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        problems.append(f"{name} is damaged.")
        return {}
    return value


def as_number(value: Any) -> float | None:
    """A finite number as a float. None for anything else, including bools and integers too large for a float."""
    if type(value) is not float:
        if type(value) is not int:
            return None
        try:
            value = float(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


@dataclass
class Lines:
    """The records of a JSONL file, one at a time. An incomplete last line is left out: it is still being written."""

    run: Path
    name: str
    problems: list[str]
    never_skip: bytes = b""
    count: int = 0
    damaged: int = 0
    skipped: int = 0
    _kept: int = field(default=0, repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            path = plain_path(self.run, self.name)
            if path is not None:
                with documents.open_file(path) as file:
                    yield from self._parse(file)
        except Unreadable as error:
            self.problems.append(str(error))
        except OSError as error:
            self.problems.append(f"{self.name} cannot be read: {error.strerror}.")
        self._note_problems()

    def _parse(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        every = max(1, math.ceil(os.fstat(file.fileno()).st_size / READ_IN_FULL))
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b"")):
            if not line.endswith(b"\n"):
                if not _skip_rest(file):
                    return
                self.damaged += 1
            elif number % every and not self._must_read(line):
                self.skipped += 1
            elif (record := _parse_line(line)) is not None:
                self.count += 1
                yield record
            elif line.strip():
                self.damaged += 1

    def _must_read(self, line: bytes) -> bool:
        is_kept = bool(self.never_skip) and self.never_skip in line and self._kept < ALWAYS_READ
        self._kept += is_kept
        return is_kept

    def _note_problems(self) -> None:
        if self.damaged:
            verb = "was" if self.damaged == 1 else "were"
            self.problems.append(f"{self.name}: {count(self.damaged, 'damaged line')} {verb} left out.")
        if self.skipped:
            self.problems.append(
                f"{self.name} is large: {self.count:,} of its lines were read and {self.skipped:,} skipped, evenly."
            )


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        record = documents.parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _skip_rest(file: BinaryIO) -> bool:
    """Skip the rest of a line that is too long. False if the file ends first."""
    while piece := file.readline(LONGEST_LINE):
        if piece.endswith(b"\n"):
            return True
    return False
