"""Finds runs by filters and names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reverie.core.errors import ConfigError, RunError, nearest
from reverie.lab.filters import PATTERN, Filter, parse_filters
from reverie.lab.frames import RunList
from reverie.lab.read_run import is_run, read_run
from reverie.lab.run_index import indexed_runs
from reverie.store.run_folder import DEFAULT_RUNS_DIR, find_run, no_runs
from reverie.store.run_summary import RunSummary


def find_runs(filters: str | Iterable[str] = (), runs_dir: str | Path = DEFAULT_RUNS_DIR) -> RunList:
    """The runs that all filters accept, oldest first: ``find_runs(["algorithm=ppo", "best>450", "CartPole*"])``.

    Words that are no filters name runs: a name, its beginning, a pattern, a path, ``@last`` or ``@best``. Of several
    names, any may match. A pattern with a slash is one of paths. RunError if a name matches no run;
    filters may match none.
    """
    words = filters.split() if isinstance(filters, str) else list(filters)
    conditions, names = parse_filters(words)
    folder = Path(runs_dir)
    runs = choose(all_runs(folder), names, folder) if names else all_runs(folder, conditions)
    return RunList(keep(runs, conditions))


def find_one(name: str, runs_dir: str | Path = DEFAULT_RUNS_DIR) -> RunSummary:
    """The run with this name, path, or beginning of its name. RunError if there are none or several."""
    found = choose(all_runs(Path(runs_dir)), [name], Path(runs_dir))
    if len(found) > 1:
        names = ", ".join(run.name for run in found[:8])
        raise RunError(f"'{name}' matches several runs: {names}.", "Type more letters of the name.")
    return found[0]


def all_runs(runs_dir: Path, conditions: Sequence[Filter] = ()) -> list[RunSummary]:
    """All runs in a folder, oldest first. Those that some condition refuses may be left out."""
    return sort_runs(indexed_runs(runs_dir, conditions=conditions))


def sort_runs(runs: Iterable[RunSummary]) -> list[RunSummary]:
    return sorted(runs, key=lambda run: (run.created or 0.0, run.name))


def keep(runs: Sequence[RunSummary], conditions: Iterable[Filter]) -> list[RunSummary]:
    """The runs that all conditions accept. Settings are compared last, because they need the runs' config files."""
    kept = list(runs)
    for condition in sorted(conditions, key=lambda condition: bool(condition.setting)):
        accepts = _accepts_setting if condition.setting else Filter.accepts
        kept = [run for run in kept if accepts(condition, run)]
    return kept


def choose(runs: Sequence[RunSummary], names: Iterable[str], runs_dir: Path) -> list[RunSummary]:
    """The runs with these names, each once."""
    chosen: dict[Path, RunSummary] = {}
    for name in names:
        for run in _named(runs, name, runs_dir):
            chosen.setdefault(run.path.resolve(), run)
    return list(chosen.values())


def _named(runs: Sequence[RunSummary], name: str, runs_dir: Path) -> list[RunSummary]:
    path = Path(name)
    if path.is_dir() and is_run(path):
        return [read_run(path)]
    if name.startswith("@"):
        wanted = find_run(name, runs_dir)
        return [run for run in runs if run.name == wanted.name]
    if PATTERN.search(name):
        found = [run for run in runs if fnmatchcase(run.name, name)]
        if os.sep in name:  # a pattern of paths
            found += [read_run(folder) for folder in map(Path, sorted(glob.glob(name))) if is_run(folder)]
    else:
        found = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
    if not found and not runs:
        raise no_runs(runs_dir)
    if not found:
        raise RunError(f"No run in '{runs_dir}' matches '{name}'.", nearest(name, [run.name for run in runs]))
    return found


def _accepts_setting(condition: Filter, run: RunSummary) -> bool:
    values = setting_values(run, condition.setting)
    return condition.accepts_value(tuple(values)) if values else condition.accepts_value(None)


def setting_values(run: RunSummary, key: str) -> list[Any]:
    """The values of a setting of a run: none if the run has no such setting. A schedule is written as it is typed."""
    from reverie.config.files import read_tree
    from reverie.config.path_names import named_leaves
    from reverie.core.schedule import shorten

    try:
        tree = read_tree(run.path / "config.yaml")
    except ConfigError:  # already among the run's problems
        return []
    found = [value for name, value in named_leaves(tree, whole_schedules=True) if name == key]
    found = found or [value for name, value in named_leaves(tree) if name == key]
    return [shorten(value, tree.get("horizon_steps")) for value in found]
