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
        _flock(descriptor, fcntl.LOCK_EX, run)
        with suppress(OSError):  # on a full disk the lock holds as well, only without a name
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


@contextmanager
def share_run(run: Path) -> Iterator[None]:
    """Look at the run for this block while nobody trains it; others may look as well. Writes nothing."""
    path = run / "lock"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # it was never trained here, or may not be looked at this way
        yield
        return
    try:
        _flock(descriptor, fcntl.LOCK_SH, run)
        yield
    finally:
        os.close(descriptor)


def _flock(descriptor: int, kind: int, run: Path) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _held(run, (run / "lock").read_text().strip()) from error


def _held(run: Path, holder: str) -> RunError:
    """Who holds the run; it is not known for a moment after the lock is taken, nor if somebody only looks at it."""
    if not holder:
        return RunError(f"The run '{run.name}' is being trained by another process.", "Wait for it.")
    if not _is_running(holder):
        return RunError(f"The run '{run.name}' is in use by another process, such as reverie verify.", "Wait for it.")
    message = f"The run '{run.name}' is being trained by another process (pid {holder})."
    return RunError(message, f"Wait for it, or stop it with: kill {holder}")


def _is_running(pid: str) -> bool:
    """Whether there is such a process; on a disk that machines share it may run on another one."""
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
