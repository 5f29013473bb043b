"""The index of a runs folder: the summaries of all runs in one SQLite file, so that lists need not read every run.

Run folders stay the source of truth. The index lies in the user's cache, so a stranger's folder cannot bring one along,
and it can be deleted at any time. A run is read again when its fingerprint has changed. Whatever goes wrong with the
index, a list is complete: runs are then read from their folders, and a note says why.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError
from reverie.lab import index_file
from reverie.lab.filters import Filter
from reverie.lab.fingerprint import Fingerprints, open_fingerprints
from reverie.lab.index_file import Damaged, Unusable
from reverie.lab.read_run import ENDED, is_run, read_run
from reverie.store.lock import is_in_use
from reverie.store.run_summary import RunSummary

COLUMNS = ("fingerprint", *(field.name for field in fields(RunSummary) if field.name != "path"))
LISTS = ("tags", "problems")
"""Columns that hold a JSON list of texts."""
FINGERPRINT, NAME, STATUS, TAGS, PROBLEMS = map(COLUMNS.index, ("fingerprint", "name", "status", *LISTS))
LIVE = ("running", "interrupted")
"""Which of the two it is depends on a lock, which leaves no trace in the files."""
PLAIN = frozenset(COLUMNS) - {"fingerprint", "status", *LISTS}
"""Columns whose values are those of the summary."""
Row = tuple[Any, ...]
"""A run in the index: the values of ``COLUMNS``."""
Note = Callable[[str], None]


def print_note(text: str) -> None:
    print(f"Note: {text}", file=sys.stderr)


def indexed_runs(runs_dir: Path, note: Note = print_note, conditions: Sequence[Filter] = ()) -> list[RunSummary]:
    """The summaries of all runs in a folder. Reads only runs that are new or have changed.

    Runs that some condition refuses may be left out. Making ten thousand summaries takes longer than finding them.
    """
    try:
        with open_fingerprints(runs_dir) as fingerprints:
            names = fingerprints.names()
            known = _load(runs_dir, note) if names else {}
            rows = _read_changed(runs_dir, names, known, fingerprints)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"'{runs_dir}' cannot be read: {error.strerror}.", "Name a folder with --runs-dir.") from error
    changed = {name: row for name, row in rows.items() if row is not known.get(name)}
    gone = known.keys() - rows.keys()
    if changed or gone:
        _save(runs_dir, changed, gone, note)
    return [_summary(runs_dir / name, row) for name, row in _accepted(rows, conditions).items()]


def rebuild(runs_dir: Path, note: Note = print_note) -> list[RunSummary]:
    """Delete the index and build it again."""
    index_file.delete(index_file.index_path(runs_dir))
    return indexed_runs(runs_dir, note)


def _read_changed(
    runs_dir: Path, names: Iterable[str], known: Mapping[str, Row], fingerprints: Fingerprints
) -> dict[str, Row]:
    """The rows of all runs: those in the index that are still true, and new ones."""
    rows: dict[str, Row] = {}
    for name in names:
        row = known.get(name)
        if row is not None and fingerprints.is_equal(name, row[FINGERPRINT], row[STATUS] in ENDED):
            rows[name] = row
        elif is_run(runs_dir / name):
            fingerprint = fingerprints.whole(name)  # before reading: a change meanwhile is then noticed next time
            rows[name] = _make_row(fingerprint, read_run(runs_dir / name))
    return rows


def _accepted(rows: dict[str, Row], conditions: Iterable[Filter]) -> dict[str, Row]:
    """The rows that all conditions on plain columns accept. Each value is judged once: most are shared by many runs."""
    for condition in conditions:
        if condition.attribute in PLAIN:
            column = COLUMNS.index(condition.attribute)
            verdicts = {value: condition.accepts_value(value) for value in {row[column] for row in rows.values()}}
            rows = {name: row for name, row in rows.items() if verdicts[row[column]]}
    return rows


def _load(runs_dir: Path, note: Note) -> dict[str, Row]:
    """The rows of the index. Empty if there is none yet or it is damaged."""
    path = index_file.index_path(runs_dir)
    if not path.exists():
        return {}
    try:
        with closing(index_file.open_index(path, COLUMNS)) as index, index_file.explained():
            rows = {row[NAME]: row for row in index.execute(f"SELECT {', '.join(COLUMNS)} FROM runs")}
            _check(rows)
            return rows
    except Damaged:
        index_file.delete(path)
        note(f"the index of '{runs_dir}' was damaged. It is built again from the run folders.")
    except Unusable as error:
        note(f"the index '{path}' cannot be read ({error}), so all runs are read. Nothing is missing.")
    return {}


def _save(runs_dir: Path, changed: Mapping[str, Row], gone: Iterable[str], note: Note) -> None:
    """Write what has changed. Other processes may do the same: each writes only what it has just read."""
    path = index_file.index_path(runs_dir)
    deleted = [(name,) for name in gone if not os.path.lexists(runs_dir / name)]
    insert = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * len(COLUMNS))})"
    try:
        with closing(index_file.open_index(path, COLUMNS)) as index, index_file.explained():
            index.execute("BEGIN IMMEDIATE")
            index.executemany(insert, list(changed.values()))
            index.executemany("DELETE FROM runs WHERE name = ?", deleted)
            index.execute("COMMIT")
    except Damaged:
        index_file.delete(path)  # the next list builds it again
    except Unusable as error:
        note(f"the index '{path}' cannot be written ({error}), so every list reads all runs. Nothing is missing.")


def _check(rows: Mapping[str, Row]) -> None:
    """Raise Damaged for lists that are none. SQLite finds a damaged page, but not a changed letter."""
    texts = {row[column] for row in rows.values() for column in (TAGS, PROBLEMS)}
    try:
        are_lists = all(isinstance(json.loads(text), list) for text in texts)
    except (ValueError, TypeError) as error:
        raise Damaged("a list is damaged") from error
    if not are_lists:
        raise Damaged("a list is damaged")


def _make_row(fingerprint: str, run: RunSummary) -> Row:
    """The row of a run. Text that is not valid Unicode, which SQLite would refuse, is made so."""
    values = (json.dumps(getattr(run, name)) if name in LISTS else getattr(run, name) for name in COLUMNS[1:])
    texts = (value.encode(errors="replace").decode() if isinstance(value, str) else value for value in values)
    return (fingerprint, *texts)


def _summary(path: Path, row: Row) -> RunSummary:
    found = list(row)
    for column in (TAGS, PROBLEMS):
        found[column] = () if found[column] == "[]" else tuple(json.loads(found[column]))
    if found[STATUS] in LIVE:
        found[STATUS] = LIVE[not is_in_use(path)]
    return RunSummary(path, *found[1:])
