"""In what two runs differ: settings, code, versions, machine and scores. Reads both as data only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reverie.config.explain import diff
from reverie.config.files import read_tree
from reverie.config.secrets import hide_in_tree
from reverie.core.errors import RunError, one_screen
from reverie.lab.columns import MISSING, show
from reverie.report.settings import show_value
from reverie.store import documents
from reverie.store.files import digest_bytes
from reverie.store.run_folder import RunFolder
from reverie.store.run_summary import RunSummary

ALWAYS = ("status", "steps", "best", "final")
"""Columns that are shown even if they are equal."""
OTHERS = ("spec", "parent", "resumes", "commit", "tag", "note", "created")
PATCH = "uncommitted.diff"


@dataclass(frozen=True)
class DiffRow:
    """One difference."""

    key: str
    left: Any
    right: Any

    def texts(self) -> tuple[str, str, str]:
        return self.key, _one_line(self.left), _one_line(self.right)


@dataclass(frozen=True)
class RunDiff:
    """All differences of two runs."""

    settings: list[DiffRow]
    facts: list[DiffRow]

    def to_json(self) -> dict[str, Any]:
        return {
            part: {row.key: {"left": row.left, "right": row.right} for row in rows}
            for part, rows in (("settings", self.settings), ("facts", self.facts))
        }


def compare_folders(left: RunSummary, right: RunSummary) -> RunDiff:
    """The differences. ConfigError if the config of a run cannot be read."""
    trees = [hide_in_tree(read_tree(side.path / "config.yaml")) for side in (left, right)]
    settings = [DiffRow(entry.key, entry.left, entry.right) for entry in diff(*trees)]
    return RunDiff(settings, [row for row in _facts(left, right) if row.key in ALWAYS or row.left != row.right])


def _one_line(value: Any) -> str:
    return one_screen(show_value(value)).replace("\n", " ")


def _facts(left: RunSummary, right: RunSummary) -> Iterator[DiffRow]:
    for column in (*ALWAYS, *OTHERS):
        yield DiffRow(column, show(left, column), show(right, column))
    yield DiffRow("uncommitted changes", _patch(left), _patch(right))
    sides = [_recorded(side) for side in (left, right)]
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        yield DiffRow(key, *(side.get(key, MISSING) for side in sides))


def _recorded(run: RunSummary) -> dict[str, str]:
    """Versions and machine by name. Empty if the manifest is damaged, which the run list shows."""
    try:
        manifest = RunFolder(run.path).manifest()
    except RunError:
        return {}
    parts = (("version", manifest.get("versions", {})), ("machine", manifest.get("machine", {})))
    return {f"{part} {name}": str(value) for part, values in parts for name, value in values.items()}


def _patch(run: RunSummary) -> str:
    """A short digest of the changes that the commit does not contain."""
    try:
        return digest_bytes(documents.read_bytes(run.path / PATCH))[:10]
    except FileNotFoundError:
        return "none"
    except (OSError, ValueError):
        return "cannot be read"
