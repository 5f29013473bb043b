"""What resumes did to a run: which settings held in which stretch of it.

``resumes.jsonl`` has a line per resume, and ``config-before-resume-<n>.yaml`` keeps the config that resume n replaced.
A resume from an earlier checkpoint abandons what came after it, also what later resumes had said about that stretch.
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
"""The place before every checkpoint; sorts before all of theirs."""


@dataclass(frozen=True)
class Goal:
    """Where exactly a run stood: its counters and the state of its scheduler."""

    counters: dict[str, int]
    scheduler: State

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Goal:
        return cls(checkpoint.counters, checkpoint.read("scheduler"))


@dataclass(frozen=True)
class Resumption:
    """One line of resumes.jsonl: where the run went on, and what changed there."""

    number: int
    place: list[int]
    changes: list[dict[str, Any]]
    goal: Goal | None = None
    """Where the run stood; runs of before do not tell."""

    def lines(self) -> list[str]:
        """The changes that make it another run from there on, for people."""
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
        raise RunError(f"{path} is damaged: {error}", "Remove it; verify then takes config.yaml throughout.") from error


def config_path_before(run: Path, checkpoint: Checkpoint) -> Path:
    """The config with which the run came to a checkpoint."""
    return _config_path(run, read_history(run), position(checkpoint.name))


def changes_between(run: Path, start: Checkpoint | None, end: Checkpoint) -> list[tuple[Path, Resumption]]:
    """The resumes between two checkpoints, or after the beginning, that changed settings; each after the config that
    held up to it. Their own checkpoints may be gone by now."""
    history = read_history(run)
    begin, reached = BEGINNING if start is None else position(start.name), position(end.name)
    inside = [resumption for resumption in _valid(history) if begin < resumption.place < reached]
    paths = [_config_path(run, history, place) for place in (*(resumption.place for resumption in inside), reached)]
    pairs = zip(inside, paths, paths[1:], strict=False)  # paths has one more, that of the end
    return [(before, resumption) for resumption, before, after in pairs if before != after]


def _config_path(run: Path, history: list[Resumption], reached: list[int]) -> Path:
    """The config with which the run came to a place."""
    last = max((resumption.number for resumption in _valid(history) if resumption.place < reached), default=0)
    replaced = (resumption.number for resumption in history if resumption.number > last and resumption.changes)
    number = next(replaced, None)
    return run / "config.yaml" if number is None else run / f"config-before-resume-{number}.yaml"


def _valid(history: list[Resumption]) -> list[Resumption]:
    """Those of which the run still has what came after, by their places."""
    valid: list[Resumption] = []
    for resumption in history:
        valid = [earlier for earlier in valid if earlier.place < resumption.place] + [resumption]
    return valid


def _parse(entry: dict[str, Any]) -> Resumption:
    name = entry["checkpoint"]
    changes = [{key: change[key] for key in ("key", "old", "new", "keeps_exactness")} for change in entry["changes"]]
    goal = Goal(dict(entry["counters"]), dict(entry["scheduler"])) if "scheduler" in entry else None
    if goal is not None and not all(type(goal.counters[counter]) is int for counter in ("env_steps", "cycles")):
        raise ValueError("its counters are no whole numbers")
    return Resumption(int(entry["number"]), BEGINNING if name is None else position(name), changes, goal)
