"""The SQLite file of an index: where it is, how it is opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from reverie.store.cache import cache_folder

VERSION = 1
"""To be raised when the columns of an index change their meaning."""
WAIT_SECONDS = 20.0
KEPT_SECONDS = 90 * 86_400
_SIDE_FILES = ("", "-journal", "-wal", "-shm")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)
"""SQLITE_ERROR: our statements are correct, so a missing table or column means that the file is not ours."""


class Damaged(Exception):
    """The index is no index of ours. It can be deleted."""


class Unusable(Exception):
    """Why the index cannot be read or written."""


def index_path(runs_dir: Path) -> Path:
    """The index of a runs folder, in the cache of the user."""
    name = blake2b(os.fsencode(runs_dir.resolve()), digest_size=10).hexdigest()
    return cache_folder("index") / f"{name}.sqlite"


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of SQLite and of the disk as Damaged or Unusable."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGE and not isinstance(error, sqlite3.ProgrammingError):
            raise Damaged(str(error)) from error
        raise Unusable(str(error)) from error
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from error


def open_index(path: Path, columns: Sequence[str]) -> sqlite3.Connection:
    """Open an index, and create it if there is none or an older one. Damaged or Unusable if that fails."""
    with explained():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _delete_old(path.parent)
        index = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            _prepare(index, columns)
        except BaseException:
            index.close()
            raise
        return index


def delete(path: Path) -> None:
    for ending in _SIDE_FILES:
        with suppress(OSError):
            Path(f"{path}{ending}").unlink()


def _prepare(index: sqlite3.Connection, columns: Sequence[str]) -> None:
    index.execute("PRAGMA trusted_schema = OFF")
    index.execute("PRAGMA synchronous = OFF")  # syncing takes longer than all the rest, and the index can be rebuilt
    if _version(index) == VERSION:
        return
    index.execute("BEGIN IMMEDIATE")
    if _version(index) != VERSION:  # another process may have been faster
        keys = ", ".join(f"{name} PRIMARY KEY" if name == "name" else name for name in columns)
        index.execute("DROP TABLE IF EXISTS runs")
        index.execute(f"CREATE TABLE runs ({keys}) WITHOUT ROWID")
        index.execute(f"PRAGMA user_version = {VERSION}")
    index.execute("COMMIT")


def _version(index: sqlite3.Connection) -> int:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    return int(version)


def _delete_old(folder: Path) -> None:
    """Delete indexes that nobody has changed for months: their folders of runs may be gone."""
    for path in folder.glob("*.sqlite"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                delete(path)
