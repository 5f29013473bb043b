"""Writing files so that a crash or a full disk leaves no damage: synced, atomic, and verified by hashes."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reverie.core.errors import RunError
from reverie.store import documents

WRITE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EEXIST,
    errno.ENOTDIR, errno.ENOTEMPTY,
}  # fmt: skip


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file and sync it to disk."""
    write_pieces(path, [data])


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def install_folder(temporary: Path, path: Path) -> None:
    """Move a complete folder to its final path, replacing an existing one as a whole.

    A crash leaves the old folder, the new one or none, but never a mixture. Nothing is written through links in the old
    folder.
    """
    sync_folder(temporary)
    former = path.with_name(f".{path.name}.old")
    delete_any(former)
    if os.path.lexists(path):
        os.rename(path, former)
    os.rename(temporary, path)
    sync_folder(path.parent)
    delete_any(former)


def delete_any(path: Path) -> None:
    """Delete a folder, a file or a link (not its target), if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def digest_files(folder: Path) -> dict[str, str]:
    """Hashes of all files in a folder, by name."""
    return {file.name: _digest_file(file) for file in sorted(folder.iterdir())}


def check_file(path: Path, digest: str) -> None:
    """Raise RunError if a file is missing or its content has changed."""
    if not path.is_file():
        raise RunError(f"{path} is missing.")
    try:
        is_intact = _digest_file(path) == digest
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not is_intact:
        raise RunError(f"{path} is damaged: its content does not match the saved hash.")


def digest_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _digest_file(path: Path) -> str:
    with documents.open_file(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@contextmanager
def explain_write_errors(run: Path, go_on: str) -> Iterator[None]:
    """Turn errors of a full or unwritable disk into a RunError. ``go_on`` is the command that continues the run."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and not run.exists():
            fix = "It was moved or deleted during the run. Move it back and resume it, or start a new run."
            raise RunError(f"The run folder '{run}' no longer exists.", fix) from error
        if error.errno not in WRITE_ERRORS and not _is_missing_inside(run, error):
            raise
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise RunError(
            f"'{error.filename or run}' could not be written: {reason}.",
            f"Earlier checkpoints are intact. Free some space or correct the permissions, then: {go_on}",
        ) from error


def _is_missing_inside(run: Path, error: OSError) -> bool:
    """Whether something in the run folder was deleted. A missing file elsewhere, perhaps of the env, does not count."""
    is_named = error.errno == errno.ENOENT and isinstance(error.filename, str)
    return is_named and Path(error.filename).absolute().is_relative_to(run.absolute())
