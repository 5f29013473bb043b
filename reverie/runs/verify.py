"""Verify that a run can be reproduced: train a segment again in a scratch folder and compare every bit.

A segment is the part between two checkpoints, or between the start and the first one. We compare the metrics, the
episode scores and the state of every part at the end. Each segment uses the settings that applied in it, even if a
resume changed them later. A verdict names the first difference and what has changed since the run was trained.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reverie.config.files import read_config
from reverie.config.pipeline import Prepared, check, read_saved
from reverie.config.resolve import budget_of
from reverie.config.schema import RunConfig
from reverie.core.contracts import Stateful
from reverie.core.counters import Budget
from reverie.core.errors import RunError
from reverie.core.types import Sealed, State
from reverie.log.progress import Task, progress, quiet_progress
from reverie.runs.assemble import assemble, build_first, filled_buffers
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.history import Goal, Resumption, changes_between, config_path_before, read_history
from reverie.store import documents
from reverie.store.checkpoint import Checkpoint, CheckpointFolder
from reverie.store.lock import share_run
from reverie.store.repository import CodeVersion
from reverie.store.run_folder import RunFolder, machine, versions
from reverie.training.session import Session

COMPARED_LOGS = ("metrics", "scores", "alerts")
ADDED_METRIC = "frames"
"""A line of metrics.jsonl without it is of an earlier version."""
OTHER_BITS = "so other last bits are expected"


@dataclass(frozen=True)
class Segment:
    """The part of a run between two checkpoints. Without ``start`` it begins at the first step."""

    start: Checkpoint | None
    end: Checkpoint
    budget: Budget = field(default_factory=Budget)

    @property
    def begins(self) -> int:
        return self.start.counters[self.budget.counter] if self.start else 0

    @property
    def ends(self) -> int:
        return self.end.counters[self.budget.counter]

    def __str__(self) -> str:
        return f"{self.budget.unit} {self.begins:,} to {self.ends:,}"


@dataclass(frozen=True)
class Verdict:
    """The result of training a segment again."""

    segment: str
    differences: list[str] = field(default_factory=list)
    surroundings: list[str] = field(default_factory=list)
    obstacle: str = ""
    """Why the segment could not be trained again, if so."""

    @property
    def is_reproduced(self) -> bool:
        return not self.differences and not self.obstacle

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reproduced": None if self.obstacle else self.is_reproduced}


@dataclass(frozen=True)
class Piece:
    """A part of a segment with one config."""

    prepared: Prepared
    goal: Goal


def verify_run(folder: RunFolder, which: Literal["last", "first", "all"] = "last") -> Iterator[Verdict]:
    """Train the segments again, one after the other."""
    with share_run(folder.path):
        for segment in _segments(folder, which):
            last_config = config_path_before(folder.path, segment.end)
            config = read_config(last_config)
            segment = replace(segment, budget=budget_of(config.phases))
            changes = changes_between(folder.path, segment.start, segment.end)
            if obstacle := _obstacle(changes):
                yield Verdict(str(segment), obstacle=obstacle)
                continue
            ways = [(path, goal) for path, change in changes if (goal := change.goal)]
            pieces = _read_pieces([*ways, (last_config, Goal.of(segment.end))], segment.start)
            # Evaluations inside it show no progress of their own.
            with progress(f"training {segment} again", total=segment.ends - segment.begins) as task, quiet_progress():
                found = _compare_segment(pieces, folder, segment, task)
            yield Verdict(str(segment), found, surroundings(folder, config) if found else [])


def _read_pieces(ways: list[tuple[Path, Goal]], start: Checkpoint | None) -> list[Piece]:
    """The parts of a segment, their configs checked like those of a resume."""
    pieces: list[Piece] = []
    for path, goal in ways:
        prepared = read_saved(path, pieces[-1].prepared.env if pieces else None)
        check(prepared, filled_buffers(prepared.config, start))
        pieces.append(Piece(prepared, goal))
    return pieces


def _obstacle(changes: list[tuple[Path, Resumption]]) -> str:
    """Why a segment cannot be verified: runs of older versions did not record where their settings changed."""
    unknown = next((change for _, change in changes if change.goal is None), None)
    if unknown is None:
        return ""
    keys = ", ".join(change["key"] for change in unknown.changes) or "settings"
    steps = unknown.position[0]
    return f"resume {unknown.number} changed {keys} at env step {steps:,}, and the checkpoint there is gone"


def surroundings(folder: RunFolder, config: RunConfig) -> list[str]:
    """What differs between the machine that made the run and this one."""
    manifest = folder.manifest()
    then = {**manifest.get("versions", {}), **manifest.get("machine", {}), **manifest.get("git", {})}
    now = {**versions(), **machine(), **CodeVersion.of(Path.cwd()).to_json()}
    keys = [key for key in {**then, **now} if key != "blas" or key in then]  # older runs did not record it
    if "commit" in then and "commit" not in now:
        keys = [key for key in keys if key not in ("commit", "is_clean")]
    changed = [_change(key, then, now) for key in keys if then.get(key) != now.get(key)]
    changed.sort(key=lambda line: OTHER_BITS not in line)
    settings = config.backend
    resumed = [line for resumption in read_history(folder.path) for line in resumption.lines()]
    return [*changed, *resumed, f"device {settings.device}, threads {settings.threads}"]


def _change(key: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    reason = f" ({OTHER_BITS})" if key in ("processor", "blas") else ""
    return f"{key}: {then.get(key)} -> {now.get(key)}{reason}"


def _segments(folder: RunFolder, which: str) -> list[Segment]:
    known = CheckpointFolder(folder.path).all()
    if not known:
        raise RunError(f"The run '{folder.name}' has no checkpoint to compare with.", "Let it train until its first.")
    for checkpoint in known:
        checkpoint.check()
    segments = [Segment(start, end) for start, end in zip([None, *known[:-1]], known, strict=True)]
    return {"all": segments, "first": segments[:1], "last": segments[-1:]}[which]


def _compare_segment(pieces: list[Piece], folder: RunFolder, segment: Segment, task: Task) -> list[str]:
    start = segment.start
    with tempfile.TemporaryDirectory(prefix="reverie-verify-") as path:
        scratch = RunFolder(Path(path))
        for piece in pieces[:-1]:
            with _trained_again(piece, start, folder, scratch, _Watch(task, segment)) as checkpointer:
                start = checkpointer.save()
        with _trained_again(pieces[-1], start, folder, scratch, _Watch(task, segment)) as checkpointer:
            checkpointer.logs.sync()
            states = {name: part.state() for name, part in checkpointer.parts().items()}
            found = _compare_states(segment.end.read, states, segment.end)
            if found:  # an older version may have saved the same state under other names
                with _loaded(pieces[-1], segment.end, folder) as loaded:
                    found = _compare_states(lambda name: loaded[name].state(), states, segment.end)
            current_metric = checkpointer.session.algorithm.traits.current_metric
            return _compare_logs(folder, scratch, segment, current_metric) + found


@contextmanager
def _trained_again(
    piece: Piece, start: Checkpoint | None, folder: RunFolder, scratch: RunFolder, watch: _Watch
) -> Iterator[Checkpointer]:
    """A session that was trained from ``start``, or from the beginning, to the goal."""
    with assemble(piece.prepared, scratch, build_first(piece.prepared, start is None)) as run:
        run.start_from(start, folder.path)
        run.make_loop([watch], lambda: _is_at(run.session, piece.goal)).run()
        yield run.checkpointer


@contextmanager
def _loaded(piece: Piece, checkpoint: Checkpoint, folder: RunFolder) -> Iterator[Mapping[str, Stateful]]:
    """The parts of a fresh session that has loaded ``checkpoint``."""
    with (
        tempfile.TemporaryDirectory(prefix="reverie-verify-") as place,
        assemble(piece.prepared, RunFolder(Path(place)), build_first(piece.prepared, is_new=False)) as run,
    ):
        run.start_from(checkpoint, folder.path)
        yield run.checkpointer.parts()


@dataclass(frozen=True)
class _Watch:
    """Shows the progress of a segment."""

    task: Task
    segment: Segment

    def end_cycle(self, session: Session) -> None:
        self.task.done = session.counters.progress(self.segment.budget) - self.segment.begins

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        """Evaluations do not count as progress."""


def _is_at(session: Session, goal: Goal) -> bool:
    """Whether the session has reached the position of a checkpoint, or has passed it."""
    counters = session.counters.state()
    if counters["cycles"] > goal.counters["cycles"]:
        return True
    reached = {name: counters.get(name) for name in goal.counters}  # older checkpoints have no counters of hooks
    return reached == goal.counters and session.scheduler.state() == goal.scheduler


def _compare_logs(
    folder: RunFolder, scratch: RunFolder, segment: Segment, current_metric: Callable[[str], str]
) -> list[str]:
    differences = []
    for kind in (kind for kind in COMPARED_LOGS if kind in segment.end.summary["logs"]):
        begin = segment.start.summary["logs"].get(kind, 0) if segment.start else 0
        end = segment.end.summary["logs"][kind]
        expected, found = _read_log(folder, kind)[begin:end], _read_log(scratch, kind)
        if expected != found and not _is_same_log(expected, found, current_metric):
            differences.append(f"{kind}: {_first_different_line(expected, found)}")
    return differences


def _is_same_log(expected: bytes, found: bytes, current_metric: Callable[[str], str]) -> bool:
    """Whether the lines differ only as those of an earlier version do: in the names and the order of metrics, and in
    metrics that were added."""
    lines = list(zip_longest(expected.split(b"\n"), found.split(b"\n"), fillvalue=b""))
    return all(old == new or _is_same_line(old, new, current_metric) for old, new in lines)


def _is_same_line(old: bytes, new: bytes, current_metric: Callable[[str], str]) -> bool:
    try:
        before, after = json.loads(old), json.loads(new)
        if ADDED_METRIC in before or ADDED_METRIC not in after:
            return False
        values = {current_metric(name): repr(value) for name, value in before.items()}
        return values == {name: repr(value) for name, value in after.items() if name in values}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


def _read_log(folder: RunFolder, kind: str) -> bytes:
    path = folder.path / f"{kind}.jsonl"
    if not path.exists():
        return b""
    try:
        with documents.open_file(path) as file:
            return file.read()
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}.") from error


def _first_different_line(expected: bytes, found: bytes) -> str:
    lines = list(zip(expected.split(b"\n"), found.split(b"\n"), strict=False))
    old, new = next(((old, new) for old, new in lines if old != new), (b"", b""))
    try:
        before, after = json.loads(old), json.loads(new)
        changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return f"{len(expected)} bytes became {len(found)}, first at the line {old[:80]!r} -> {new[:80]!r}"
    where = f"env step {after.get('env_steps')}" + (f", update {after['updates']}" if "updates" in after else "")
    return f"first at {where}: {', '.join(f'{key} {before.get(key)} -> {after.get(key)}' for key in changed[:3])}"


def _compare_states(read: Callable[[str], State], states: dict[str, State], end: Checkpoint) -> list[str]:
    """The parts whose states differ from those that ``read`` returns."""
    differences = []
    for name, state in ((name, state) for name, state in states.items() if name in end.summary["parts"]):
        expected = read(name)
        if name == "counters":  # older checkpoints lack some counters
            state = {key: value for key, value in state.items() if key in expected}
        path = next(first_difference(expected, state), None)
        if path is not None:
            differences.append(f"{name}: differs at {path or 'its root'}")
    return differences


def first_difference(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The paths of leaves that differ between two states."""
    old, new = _comparable(old), _comparable(new)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key not in old or key not in new:
                yield f"{path}/{key}"
            else:
                yield from first_difference(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.dtype != new.dtype or old.shape != new.shape or old.tobytes() != new.tobytes():
            yield path
    elif type(old) is not type(new) or repr(old) != repr(new):
        yield path


def _comparable(node: Any) -> Any:
    """A leaf as it is read back from disk."""
    if hasattr(node, "detach"):
        node = node.detach().cpu().numpy()
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, Sealed):
        return node.arrays
    if isinstance(node, list | tuple):
        return {str(i): value for i, value in enumerate(node)}
    return {str(key): value for key, value in node.items()} if isinstance(node, dict) else node
