"""The trash of a folder of runs: parts that ``reverie runs clean`` has moved out of them, until it is emptied.

``<runs>/.trash/<run>-<n>/`` has ``entry.json`` and the ``parts``. Moving is renaming, so it is instant and copies
nothing; the run keeps ``cleaned.json``, which says what is gone. A crash in the middle loses nothing: the entry is
written first, and restoring it moves back whatever has arrived.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reverie.core.errors import RunError
from reverie.store.files import delete_any
from reverie.store.lock import lock_run
from reverie.store.run_folder import RunFolder, read_json, write_json

FOLDER, MARK = ".trash", "cleaned.json"
PARTS = (
    "checkpoints", "policies", "videos", "tensorboard", "wandb", "scope", "foresight", "debug", "metrics.csv",
    "report.html",
)  # fmt: skip
"""What may be removed from a run: all that is large, except the files that record what happened."""

PERMISSIONS = "Correct the permissions, and repeat the command."


@dataclass(frozen=True)
class TrashEntry:
    """Parts of one run in the trash."""

    path: Path
    run: Path
    time: float
    """Unix time of the move."""

    @property
    def parts(self) -> list[Path]:
        return sorted((self.path / "parts").glob("*"))


def read_trash(runs_dir: Path) -> list[TrashEntry]:
    """The entries in the trash of a folder of runs, oldest first. Damaged ones are left out."""
    entries = []
    for path in sorted((runs_dir / FOLDER).glob("*/entry.json")):
        with suppress(RunError, KeyError, TypeError, ValueError):
            entry = read_json(path)
            name = str(entry["run"])
            if name == Path(name).name and name not in ("", "..", FOLDER):  # it must not lead out of the folder
                entries.append(TrashEntry(path.parent, runs_dir / name, float(entry["time"])))
    return sorted(entries, key=lambda entry: entry.time)


def existing_parts(run: Path, without: Sequence[str] = ()) -> list[Path]:
    return [run / name for name in PARTS if name not in without and os.path.lexists(run / name)]


def move_to_trash(run: Path, parts: Sequence[Path]) -> TrashEntry:
    """Move parts of a run into the trash. RunError if the run is in use; then nothing has changed."""
    run = run.absolute()
    with lock_run(run):
        try:
            entry = _new_entry(run)
        except OSError as error:
            raise _cannot_move(run, error) from error
        moved: list[Path] = []
        try:
            write_json(run / MARK, {"time": entry.time, "parts": [part.name for part in parts]})
            for part in parts:
                os.rename(run / part.name, entry.path / "parts" / part.name)
                moved.append(part)
        except OSError as error:
            _move_back(entry, run)
            raise _cannot_move(run, error) from error
    return entry


def remove(run: Path, parts: Sequence[Path]) -> None:
    """Delete parts of a run for good, also on a full disk. RunError if the run is in use or not writable."""
    mark = {"time": time.time(), "parts": [part.name for part in parts]}
    with lock_run(run):
        with suppress(OSError):  # a full disk has no room for it before something is deleted
            write_json(run / MARK, mark)
        try:
            for part in parts:
                delete_any(part)
            write_json(run / MARK, mark)
        except OSError as error:
            raise RunError(f"'{run.name}' could not be cleaned: {error.strerror}.", PERMISSIONS) from error
    if left := [part.name for part in parts if os.path.lexists(part)]:
        raise RunError(f"'{run.name}' could not be cleaned: {' and '.join(left)} cannot be deleted.", PERMISSIONS)


def restore(entry: TrashEntry) -> None:
    """Move all parts back. RunError if the run has such parts again, or is gone."""
    if not entry.run.is_dir():
        raise RunError(f"The run '{entry.run.name}' is gone.", f"Its parts are in {entry.path / 'parts'}.")
    present = [part.name for part in entry.parts if os.path.lexists(entry.run / part.name)]
    if present:
        fix = f"Move them away first; the old ones are in {entry.path / 'parts'}."
        raise RunError(f"The run '{entry.run.name}' has {' and '.join(present)} again.", fix)
    with lock_run(entry.run):
        try:
            _move_back(entry, entry.run)
        except OSError as error:
            raise RunError(f"'{entry.run.name}' could not be restored: {error.strerror}.", "Repeat it.") from error


def delete(entries: Iterable[TrashEntry]) -> None:
    """Delete entries for good. Files that other runs share keep their other names."""
    for entry in entries:
        delete_any(entry.path)


def freed_bytes(paths: Iterable[Path]) -> int:
    """Bytes that deleting these files and folders frees: a file that has further names elsewhere frees nothing."""
    names: dict[tuple[int, int], int] = {}
    freed = 0
    for path in _files_below(paths):
        with suppress(OSError):  # deleted meanwhile
            status = path.lstat()
            key = status.st_dev, status.st_ino
            names[key] = names.get(key, 0) + 1
            freed += status.st_size if names[key] == status.st_nlink else 0
    return freed


def is_cleaned(run: Path) -> bool:
    """Whether parts of this run were removed by ``reverie runs clean``."""
    return os.path.lexists(run / MARK)


def restore_hint(run: Path) -> str:
    """What to type if something of a cleaned run is missing."""
    held = [entry for entry in read_trash(run.absolute().parent) if entry.run.name == run.absolute().name]
    if held:
        return (
            f"reverie runs clean moved them to the trash. Bring them back: reverie runs restore {RunFolder(run).words}"
        )
    return "reverie runs clean removed them for good."


def _files_below(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            yield from (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        else:
            yield path


def _new_entry(run: Path) -> TrashEntry:
    number = 1
    while True:
        path = run.parent / FOLDER / f"{run.name}-{number}"
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
    entry = TrashEntry(path, run, time.time())
    try:
        (path / "parts").mkdir()
        write_json(path / "entry.json", {"run": run.name, "time": entry.time})
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return entry


def _move_back(entry: TrashEntry, run: Path) -> None:
    for part in entry.parts:
        os.rename(part, run / part.name)
    (run / MARK).unlink(missing_ok=True)
    shutil.rmtree(entry.path, ignore_errors=True)


def _cannot_move(run: Path, error: OSError) -> RunError:
    fix = "Nothing was removed from this run. Correct the permissions. On a full disk, use --now or --empty-trash."
    return RunError(f"'{run.name}' could not be cleaned: {error.strerror}.", fix)
