"""What ``reverie runs show`` says about a run: facts, differences from its preset, files, and related runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.errors import one_screen
from reverie.core.wording import count
from reverie.lab.columns import show_age, show_date, show_score
from reverie.lab.find import all_runs
from reverie.lab.read_run import folder_size
from reverie.machine.memory import size_text
from reverie.report.settings import Difference, read_settings, show_value
from reverie.store.run_summary import RunSummary

LONGEST_CHAIN = 20
MOST_CHILDREN = 10


@dataclass(frozen=True)
class FileSize:
    """A file or folder directly in the run folder."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class Details:
    """Everything that is shown. ``parents`` starts with the run that this one took its weights from."""

    run: RunSummary
    differences: list[Difference]
    files: list[FileSize]
    parents: list[str]
    children: list[str]

    def to_json(self) -> dict[str, Any]:
        changed = [{"key": d.key, "preset": d.before, "value": d.value, "source": d.source} for d in self.differences]
        files = {file.name: file.size_bytes for file in self.files}
        return {**self.run.to_json(), "differences": changed, "files": files, "parents": self.parents,
                "children": self.children}  # fmt: skip

    def lines(self) -> list[str]:
        parts = [self._head(), self._facts(), self._settings(), self._related(), self._files(), self._problems()]
        return [line for part in parts if part for line in (*part, "")][:-1]

    def _head(self) -> list[str]:
        run = self.run
        scores = [f"{word} {show_score(value)}" for word, value in
                  (("best", run.best_score), ("final", run.final_score)) if value is not None]  # fmt: skip
        return [run.name, ", ".join([run.status, *(scores or ["not evaluated yet"])])]

    def _facts(self) -> list[str]:
        run = self.run
        created = "" if run.created is None else f"{show_date(run.created)} ({show_age(run.created)} ago)"
        pairs = [
            ("spec", run.spec), ("seed", "" if run.seed is None else str(run.seed)),
            ("done", f"{run.env_steps:,} env steps, {run.updates:,} updates"), ("created", created),
            ("tags", ", ".join(run.tags)), ("note", one_screen(run.note).replace("\n", " ")),
            ("config hash", run.config_hash), ("commit", run.git_commit), ("version", run.version),
            ("machine", run.machine), ("folder", f"{run.path} ({size_text(run.size_bytes)})"),
        ]  # fmt: skip
        return [f"  {name:<12}{text}" for name, text in pairs if text]

    def _settings(self) -> list[str]:
        if not self.differences:  # a run without a readable config has no hash
            return ["Settings: as in its preset."] if self.run.config_hash else []
        rows = [
            f"  {each.key}: {show_value(each.before)} -> {show_value(each.value)}  ({each.source})"
            for each in self.differences
        ]
        return ["Settings that differ from the preset", *map(one_screen, rows)]

    def _related(self) -> list[str]:
        rows = [f"  weights from {name}" for name in self.parents]
        rows += [f"  resumed {count(self.run.resumes, 'time')}"] if self.run.resumes else []
        rows += [f"  gave its weights to {name}" for name in self.children[:MOST_CHILDREN]]
        more = len(self.children) - MOST_CHILDREN
        return ["Related runs", *rows, *([f"  and {more} more"] if more > 0 else [])] if rows else []

    def _files(self) -> list[str]:
        return ["Files", *(f"  {size_text(file.size_bytes):>9}  {file.name}" for file in self.files)]

    def _problems(self) -> list[str]:
        return ["Problems", *(f"  {problem}" for problem in self.run.problems)] if self.run.problems else []


def read_details(run: RunSummary, runs_dir: Path) -> Details:
    """All about a run. Damaged files are among its problems."""
    others = {other.name: other for other in all_runs(runs_dir)}
    children = [other.name for other in others.values() if other.parent == run.name]
    differences = read_settings(run.path, []).differences
    return Details(run, differences, _files(run.path), _parents(run, others), children)


def _parents(run: RunSummary, others: dict[str, RunSummary]) -> list[str]:
    """The run whose weights this one took, the run whose weights that one took, and so on."""
    chain: list[str] = []
    parent = run.parent
    while parent and parent not in chain and len(chain) < LONGEST_CHAIN:
        chain.append(parent)
        parent = others[parent].parent if parent in others else ""
    return chain


def _files(path: Path) -> list[FileSize]:
    """The files and folders of a run, the largest first."""
    found = []
    for entry in path.iterdir():
        is_folder = entry.is_dir() and not entry.is_symlink()
        size = folder_size(entry) if is_folder else entry.lstat().st_size
        found.append(FileSize(one_screen(entry.name) + "/" * is_folder, size))
    return sorted(found, key=lambda file: (-file.size_bytes, file.name))
