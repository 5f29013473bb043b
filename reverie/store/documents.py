"""Safe reading of files that a stranger may have written: regular files only, no links, limited size and nesting.

A file with unsafe or invalid content raises :class:`Unreadable`, a ValueError whose text continues "... cannot be read:
". A missing or forbidden file raises OSError.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

LARGEST_DOCUMENT = 4 << 20
"""Maximum bytes of a JSON or YAML document. A config has a few thousand."""
LARGEST_STATE = 256 << 20
"""Maximum bytes of the JSON of a checkpoint's part. Arrays are in separate files."""
LONGEST_LINE = 4 << 20
"""Maximum bytes of a JSONL line. Ten thousand metrics need a tenth of it."""
DEEPEST = 100
"""Maximum nesting of lists and mappings."""
LONGEST_NUMBER = 100
"""Maximum digits of an integer. The state of a random generator has 39."""


class Unreadable(ValueError):
    """Why a file cannot be read."""


def is_file(path: Path) -> bool:
    """Whether this is a file. False for names that are too long for the system."""
    try:
        return path.is_file()
    except OSError:
        return False


def open_file(path: Path, follow_links: bool = False) -> BufferedReader:
    """Open a regular file. A link could lead to a private file, and reading a pipe could block for ever."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unreadable("it is a link, and links are not followed") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, limit: int = LARGEST_DOCUMENT, follow_links: bool = False) -> bytes:
    """The content of a file of at most ``limit`` bytes."""
    with open_file(path, follow_links) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Unreadable(f"it is larger than {limit >> 20} MB")
    return data


def read_text(path: Path, limit: int = LARGEST_DOCUMENT, follow_links: bool = False) -> str:
    try:
        return read_bytes(path, limit, follow_links).decode()
    except UnicodeDecodeError as error:
        detail = f"byte {error.start + 1} is {error.object[error.start]:#04x}"
        raise Unreadable(f"it is not UTF-8 text, perhaps a binary file ({detail})") from error


def read_json(path: Path, limit: int = LARGEST_DOCUMENT) -> Any:
    return parse_json(read_bytes(path, limit))


def read_lines(path: Path) -> Iterator[Any]:
    """The values in a JSONL file. Skips a last line that a crash left incomplete."""
    with open_file(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not line.endswith(b"\n"):
                if len(line) == LONGEST_LINE:
                    raise Unreadable(f"line {number:,} is longer than {LONGEST_LINE >> 20} MB")
                return
            try:
                if line.strip():
                    yield parse_json(line)
            except ValueError as error:
                raise Unreadable(f"line {number:,} is damaged: {error}") from error


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. Refuses numbers and nesting beyond the limits."""
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error
    if data.count(b"[") + data.count(b"{") > DEEPEST and _is_deeper(value, DEEPEST):
        raise Unreadable("it is nested too deeply")
    return value


def _parse_int(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise Unreadable(f"it contains a number with {len(text):,} digits")
    return int(text)


_DECODER = json.JSONDecoder(parse_int=_parse_int)


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested deeper than this. Without recursion, which could overflow the stack."""
    level = [value]
    for _ in range(levels + 1):
        containers = [node for node in level if isinstance(node, dict | list)]
        if not containers:
            return False
        level = [item for node in containers for item in (node.values() if isinstance(node, dict) else node)]
    return True
