"""One process per run: a lock that the system releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reverie.core.errors import RunError


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Hold the run for this block; RunError if another process has it or the folder cannot be written."""
    path = run / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"Cannot write into '{run}': {error.strerror}.", "Mend the folder's permissions.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise _held(run, path.read_text().strip()) from error
    try:
        with suppress(OSError):  # on a full disk the lock holds as well, only without a name
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def _held(run: Path, holder: str) -> RunError:
    """Who holds the run; it is not known for a moment after the lock is taken."""
    message = f"The run '{run.name}' is being trained by another process"
    if not holder:
        return RunError(f"{message}.", "Wait for it.")
    return RunError(f"{message} (pid {holder}).", f"Wait for it, or stop it with: kill {holder}")
