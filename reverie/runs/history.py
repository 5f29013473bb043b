"""The history of a run's resumes: which settings applied in which segment.

``resumes.jsonl`` has a line per resume, and ``config-before-resume-<n>.yaml`` keeps the config that resume n replaced.
A resume from an older checkpoint discards everything after that checkpoint, including earlier resumes from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError
from reverie.core.types import State
from reverie.log.sinks import read_jsonl
from reverie.store.checkpoint import Checkpoint, position

BEGINNING: list[int] = []
"""The position before all checkpoints. Sorts before all others."""


@dataclass(frozen=True)
class Goal:
    """An exact point of a run: its counters and the state of its scheduler."""

    counters: dict[str, int]
    scheduler: State

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Goal:
        return cls(checkpoint.counters, checkpoint.read("scheduler"))


@dataclass(frozen=True)
class Resumption:
    """One line of resumes.jsonl: where the run continued, and which settings changed."""

    number: int
    position: list[int]
    changes: list[dict[str, Any]]
    goal: Goal | None = None
    """The exact point of the resume. None in runs of older versions."""

    def lines(self) -> list[str]:
        """The changes after which the run is no longer the same experiment, as text."""
        return [
            f"{change['key']}: {change['old']} -> {change['new']} (resume {self.number})"
            for change in self.changes
            if not change["keeps_exactness"]
        ]


def read_history(run: Path) -> list[Resumption]:
    """All resumes of a run, in the order in which they were done."""
    path = run / "resumes.jsonl"
    try:
        return [_parse(entry) for entry in read_jsonl(path)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        fix = "Remove it. verify then uses config.yaml for the whole run."
        raise RunError(f"{path} is damaged: {error}", fix) from error


def config_path_before(run: Path, checkpoint: Checkpoint) -> Path:
    """The config with which the run reached a checkpoint."""
    return _config_path(run, read_history(run), position(checkpoint.name))


def changes_between(run: Path, start: Checkpoint | None, end: Checkpoint) -> list[tuple[Path, Resumption]]:
    """The resumes between two checkpoints (or since the beginning) that changed settings.

    Each comes with the config that applied before it. Their own checkpoints may have been deleted since.
    """
    history = read_history(run)
    begin, reached = BEGINNING if start is None else position(start.name), position(end.name)
    inside = [resumption for resumption in _valid(history) if begin < resumption.position < reached]
    paths = [_config_path(run, history, point) for point in (*(resumption.position for resumption in inside), reached)]
    pairs = zip(inside, paths, paths[1:], strict=False)  # paths has one more, that of the end
    return [(before, resumption) for resumption, before, after in pairs if before != after]


def _config_path(run: Path, history: list[Resumption], reached: list[int]) -> Path:
    """The config with which the run reached a position."""
    last = max((resumption.number for resumption in _valid(history) if resumption.position < reached), default=0)
    replaced = (resumption.number for resumption in history if resumption.number > last and resumption.changes)
    number = next(replaced, None)
    return run / "config.yaml" if number is None else run / f"config-before-resume-{number}.yaml"


def _valid(history: list[Resumption]) -> list[Resumption]:
    """The resumes that later ones did not discard, in order of their positions."""
    valid: list[Resumption] = []
    for resumption in history:
        valid = [earlier for earlier in valid if earlier.position < resumption.position] + [resumption]
    return valid


def _parse(entry: dict[str, Any]) -> Resumption:
    name = entry["checkpoint"]
    changes = [{key: change[key] for key in ("key", "old", "new", "keeps_exactness")} for change in entry["changes"]]
    goal = Goal(dict(entry["counters"]), dict(entry["scheduler"])) if "scheduler" in entry else None
    if goal is not None and not all(type(goal.counters[counter]) is int for counter in ("env_steps", "cycles")):
        raise ValueError("its counters are not whole numbers")
    return Resumption(int(entry["number"]), BEGINNING if name is None else position(name), changes, goal)
