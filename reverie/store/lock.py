"""A lock that lets one process at a time train a run. The system releases it when the process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reverie.core.errors import RunError

ATTEMPTS, PAUSE_SECONDS = 5, 0.01


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Lock the run for this block. RunError if another process holds it or the folder is not writable."""
    path = run / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"Cannot write into '{run}': {error.strerror}.", "Correct the folder's permissions.") from error
    try:
        _flock(descriptor, fcntl.LOCK_EX, run)
        with suppress(OSError):  # on a full disk the lock works too, only without the pid of its holder
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


@contextmanager
def share_run(run: Path) -> Iterator[None]:
    """Keep others from training the run during this block, which only reads it. Readers do not exclude each other."""
    path = run / "lock"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # never trained on this machine, or no permission
        yield
        return
    try:
        _flock(descriptor, fcntl.LOCK_SH, run)
        yield
    finally:
        os.close(descriptor)


def is_in_use(run: Path) -> bool:
    """Whether a process trains the run now. Lists ask for it, so the lock is held for an instant only."""
    try:
        descriptor = os.open(run / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _flock(descriptor: int, kind: int, run: Path) -> None:
    """Lock a file. Tries again for a moment: :func:`is_in_use` of another process may hold the lock for an instant."""
    for attempt in range(ATTEMPTS):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if attempt == ATTEMPTS - 1:
                raise _held(run, (run / "lock").read_text().strip()) from error
            time.sleep(PAUSE_SECONDS)


def _held(run: Path, holder: str) -> RunError:
    """The error for a locked run. The pid is unknown just after locking, and outdated if the holder only reads."""
    if not holder:
        return RunError(f"The run '{run.name}' is being trained by another process.", "Wait until it has finished.")
    if not _is_running(holder):
        message = f"The run '{run.name}' is in use by another process, such as reverie verify."
        return RunError(message, "Wait until it has finished.")
    message = f"The run '{run.name}' is being trained by another process (pid {holder})."
    return RunError(message, f"Wait until it has finished, or stop it with: kill {holder}")


def _is_running(pid: str) -> bool:
    """Whether this machine has such a process. On a shared disk, the holder may run on another machine."""
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
