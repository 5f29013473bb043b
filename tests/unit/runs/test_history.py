"""Which settings held in which stretch of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reverie.core.errors import RunError
from reverie.runs.history import Goal, changes_between, config_path_before, read_history
from reverie.store.checkpoint import Checkpoint

CHANGE = {"key": "algorithm.gamma", "old": 0.9, "new": 0.8, "keeps_exactness": False}


def name(steps: int) -> str:
    return f"{steps:012d}-{0:012d}"


def write_history(run: Path, *resumes: tuple[int | None, bool]) -> None:
    """Resumes by the env steps of their checkpoint, and whether they changed anything."""
    entries = [
        {"number": i, "checkpoint": None if steps is None else name(steps), "changes": [CHANGE] * changed}
        for i, (steps, changed) in enumerate(resumes, 1)
    ]
    (run / "resumes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def config_before(run: Path, steps: int) -> str:
    return config_path_before(run, Checkpoint(run / "checkpoints" / name(steps), {})).name


def test_a_run_that_was_never_resumed_has_one_config(tmp_path: Path) -> None:
    assert config_before(tmp_path, 100) == "config.yaml"


def test_each_stretch_has_the_config_of_its_time(tmp_path: Path) -> None:
    write_history(tmp_path, (100, False), (200, True), (300, False), (400, True))
    found = [config_before(tmp_path, steps) for steps in (100, 200, 300, 400, 500)]
    second, fourth = "config-before-resume-2.yaml", "config-before-resume-4.yaml"
    assert found == [second, second, fourth, fourth, "config.yaml"]


def test_a_resume_from_the_beginning_changes_everything(tmp_path: Path) -> None:
    write_history(tmp_path, (None, True))
    assert config_before(tmp_path, 100) == "config.yaml"


def test_what_was_abandoned_no_longer_counts(tmp_path: Path) -> None:
    """The second resume went back behind the first: the stretch from 100 on was trained anew, with its settings."""
    write_history(tmp_path, (300, True), (100, True), (200, False))
    found = [config_before(tmp_path, steps) for steps in (100, 200, 400)]
    assert found == ["config-before-resume-1.yaml", "config.yaml", "config.yaml"]


def changes(run: Path, start: int | None, end: int) -> list[tuple[str, int]]:
    """Config up to a change and number of the resume that made it."""
    first, last = (None if steps is None else Checkpoint(run / name(steps), {}) for steps in (start, end))
    assert last is not None
    return [(path.name, resumption.number) for path, resumption in changes_between(run, first, last)]


def test_changes_inside_of_a_stretch_are_found(tmp_path: Path) -> None:
    write_history(tmp_path, (100, False), (200, True), (300, False), (400, True))
    second, fourth = ("config-before-resume-2.yaml", 2), ("config-before-resume-4.yaml", 4)
    assert changes(tmp_path, None, 200) == []
    assert changes(tmp_path, 50, 300) == [second]
    assert changes(tmp_path, 200, 400) == []
    assert changes(tmp_path, None, 500) == [second, fourth]


def test_going_back_without_changes_takes_up_the_settings_of_now(tmp_path: Path) -> None:
    """The first resume changed settings at 300 and was abandoned, but its settings stayed in config.yaml."""
    write_history(tmp_path, (300, True), (100, False))
    assert changes(tmp_path, None, 200) == [("config-before-resume-1.yaml", 2)]


def test_where_exactly_a_run_went_on_is_remembered(tmp_path: Path) -> None:
    place = {"counters": {"env_steps": 5, "cycles": 1}, "scheduler": {"index": 0}}
    entry = {"number": 1, "checkpoint": name(5), "changes": []}
    (tmp_path / "resumes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (entry, {**entry, **place})))
    goals = [resumption.goal for resumption in read_history(tmp_path)]
    assert goals == [None, Goal({"env_steps": 5, "cycles": 1}, {"index": 0})]


RESUMED = {"number": 1, "checkpoint": None, "changes": []}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        [],
        {"number": 1, "checkpoint": "../x", "changes": []},
        {"number": 1, "checkpoint": 5, "changes": [1]},
        {**RESUMED, "scheduler": {}, "counters": {}},
        {**RESUMED, "scheduler": {}, "counters": {"env_steps": 1, "cycles": "x"}},
        {**RESUMED, "scheduler": 5, "counters": {"env_steps": 1, "cycles": 1}},
    ],
)
def test_a_damaged_history_is_explained(tmp_path: Path, entry: Any) -> None:
    (tmp_path / "resumes.jsonl").write_text(json.dumps(entry) + "\n")
    with pytest.raises(RunError, match=r"resumes\.jsonl is damaged"):
        read_history(tmp_path)
