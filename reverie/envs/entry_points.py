"""Envs of other packages, which they declare as entry points in the group ``reverie.envs``.

    [project.entry-points."reverie.envs"]
    "Maze/Small-v0" = "my_maze:SmallMaze"           # an env class, under this id
    maze = "my_maze.reverie_suite:SUITE"            # or a whole suite: the object is called SUITE

Env classes are imported when an env is made, suites when the first env is looked up. A suite that cannot be imported is
left out with a warning: it must not stop runs on other envs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import metadata

import gymnasium as gym

from reverie.envs.suite import Suite

GROUP = "reverie.envs"
SUITE_OBJECT = "SUITE"


def installed() -> list[metadata.EntryPoint]:
    """The declarations of all installed packages, by name."""
    return sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)


def register_classes(entries: Iterable[metadata.EntryPoint]) -> None:
    """Register declared env classes with Gymnasium, without importing them. Known ids keep their env."""
    for entry in entries:
        if entry.attr != SUITE_OBJECT and entry.name not in gym.registry:
            gym.register(entry.name, f"{entry.module}:{entry.attr}")


def load_suites(entries: Iterable[metadata.EntryPoint]) -> list[Suite]:
    """The declared suites that can be imported."""
    return [suite for entry in entries if entry.attr == SUITE_OBJECT and (suite := _load(entry)) is not None]


def _load(entry: metadata.EntryPoint) -> Suite | None:
    try:
        suite = entry.load()
    except Exception as error:  # an import may raise anything
        _warn(entry, f"cannot be imported: {type(error).__name__}: {error}")
        return None
    if not isinstance(suite, Suite):
        _warn(entry, "is not a reverie.envs.suite.Suite")
        return None
    return suite


def _warn(entry: metadata.EntryPoint, problem: str) -> None:
    package = entry.dist.name if entry.dist is not None else "a package"
    text = f"{package} declares {entry.value} in the entry points {GROUP}, but it {problem}. Its envs are missing."
    warnings.warn(text, stacklevel=2)
