"""Tags and the note of a run, in ``labels.json`` of its folder.

Several processes may change them at once, and while the run trains: each change is made under a lock of the file.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError
from reverie.store.run_folder import read_json, write_json

FILE = "labels.json"
TAG = re.compile(r"[\w][\w.:+/-]{0,49}")
LONGEST_NOTE = 2000
MOST_TAGS = 50


@dataclass(frozen=True)
class Labels:
    """What a user wrote about a run."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def with_tags(self, *tags: str) -> Labels:
        together = tuple(dict.fromkeys((*self.tags, *map(check_tag, tags))))
        if len(together) > MOST_TAGS:
            raise RunError(
                f"A run may have {MOST_TAGS} tags, not {len(together)}.", "Remove some with: reverie runs untag"
            )
        return replace(self, tags=together)

    def without_tags(self, *tags: str) -> Labels:
        return replace(self, tags=tuple(tag for tag in self.tags if tag not in tags))

    def with_note(self, note: str) -> Labels:
        if len(note) > LONGEST_NOTE:
            raise RunError(f"A note may have {LONGEST_NOTE:,} characters, not {len(note):,}.", "Shorten it.")
        return replace(self, note=note.strip())


def check_tag(tag: str) -> str:
    """The tag itself. RunError if it could not be typed in a filter."""
    if TAG.fullmatch(tag):
        return tag
    fix = "Use up to 50 letters, digits and . _ - : + /, such as paper or lr-sweep."
    raise RunError(f"'{tag}' cannot be a tag.", fix)


def read_labels(run: Path) -> Labels:
    """The labels of a run. RunError if the file is damaged."""
    path = run / FILE
    if not os.path.lexists(path):
        return Labels()
    fix = "Correct or delete the file; it holds only tags and the note."
    return _parse(read_json(path, fix), path, fix)


def change_labels(run: Path, change: Callable[[Labels], Labels]) -> Labels:
    """Replace the labels of a run by ``change(labels)``. Another process's change is never lost."""
    try:
        with _locked(run):
            labels = read_labels(run)
            changed = change(labels)
            if changed != labels:
                write_json(run / FILE, {"tags": list(changed.tags), "note": changed.note})
            return changed
    except OSError as error:
        fix = "Nothing was changed. Correct the permissions or free some space, and repeat the command."
        raise RunError(f"The labels of '{run.name}' could not be written: {error.strerror}.", fix) from error


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Wait for other changes. A lock of its own: the lock of the run is held while it trains."""
    path = run / f"{FILE}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse(value: dict[str, Any], path: Path, fix: str) -> Labels:
    tags, note = value.get("tags", []), value.get("note", "")
    is_list = isinstance(tags, list) and len(tags) <= MOST_TAGS
    if not is_list or not all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags) or not isinstance(note, str):
        raise RunError(f"{path} is damaged: it should hold a list of tags and a note.", fix)
    return Labels(tuple(tags), note[:LONGEST_NOTE])
