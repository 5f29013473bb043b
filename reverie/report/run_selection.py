"""Finds the runs of a report by name, beginning of a name, @last, @best, path or pattern."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from reverie.core.errors import RunError, nearest
from reverie.store.run_folder import find_run, list_runs

PATTERN = re.compile(r"[*?\[]")
LONGEST_NAME = 80


def choose_runs(names: Iterable[str], runs_dir: Path) -> list[Path]:
    """The folders of all named runs, each once, in the given order."""
    found = [path for name in names for path in _find(name, runs_dir)]
    unique: dict[Path, Path] = {}
    for path in found:
        unique.setdefault(path.resolve(), path)
    return list(unique.values())


def default_out(paths: list[Path], runs_dir: Path) -> Path:
    """``report-<names>.html`` in the folder of the runs. Many names become their common beginning and a count."""
    names = [path.resolve().name for path in paths]
    joined = "-and-".join(names)
    if len(joined) > LONGEST_NAME:
        begin = _common_beginning(names).strip("-_. ")
        joined = f"{begin[:LONGEST_NAME]}-{len(names)}-runs" if begin else f"{len(names)}-runs"
    return runs_dir / f"report-{re.sub(r'[^A-Za-z0-9._-]+', '-', joined)}.html"


def _find(name: str, runs_dir: Path) -> list[Path]:
    if Path(name).is_dir() or not PATTERN.search(name):
        return [_find_one(name, runs_dir)]
    runs = list_runs(runs_dir)
    matches = [run.path for run in runs if fnmatchcase(run.name, name)]
    matches += [Path(path) for path in sorted(glob.glob(name)) if (Path(path) / "config.yaml").is_file()]
    if not matches:
        known = [run.name for run in runs]
        raise RunError(f"No run in '{runs_dir}' matches '{name}'.", nearest(name, known))
    return matches


def _find_one(name: str, runs_dir: Path) -> Path:
    """Find a run as other commands do, but also accept a folder that has lost its config.yaml."""
    path = Path(name)
    is_run = path.is_dir() and any((path / part).exists() for part in ("manifest.json", "metrics.jsonl", "status.json"))
    return path if is_run else find_run(name, runs_dir)


def _common_beginning(names: list[str]) -> str:
    shortest, longest = min(names), max(names)
    size = next((i for i, (a, b) in enumerate(zip(shortest, longest, strict=False)) if a != b), len(shortest))
    return shortest[:size]
