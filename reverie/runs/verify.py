"""Proves that a run can be reproduced: trains a segment again in a scratch folder and compares every bit.

A segment lies between two checkpoints, or between the start and the first one. Compared are the metrics, the episode
scores and the state of every part at the end. Where something differs, the first difference is named, and what has
changed since the run was made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reverie.config.build import build, build_evaluator
from reverie.config.files import read_config
from reverie.config.schema import RunConfig
from reverie.core.errors import RunError
from reverie.core.types import Sealed, State
from reverie.log.sinks import JsonlSink, read_jsonl
from reverie.runs.checkpoint import Checkpoint, CheckpointFolder
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.execute import load_checkpoint
from reverie.runs.folder import RunFolder, git_commit, machine, versions
from reverie.runs.policies import PolicyShelf
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session

COMPARED_LOGS = ("metrics", "scores")


@dataclass(frozen=True)
class Segment:
    """A stretch of a run; without ``start`` it begins at env step 0."""

    start: Checkpoint | None
    end: Checkpoint

    def __str__(self) -> str:
        begin = self.start.counters["env_steps"] if self.start else 0
        return f"env steps {begin:,} to {self.end.counters['env_steps']:,}"


@dataclass(frozen=True)
class Verdict:
    """What came of training a segment again."""

    segment: str
    differences: list[str] = field(default_factory=list)
    surroundings: list[str] = field(default_factory=list)

    @property
    def is_reproduced(self) -> bool:
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reproduced": self.is_reproduced}


def verify_run(folder: RunFolder, which: Literal["last", "first", "all"] = "last") -> Iterator[Verdict]:
    """Train the segments again, one after the other."""
    config = read_config(folder.config_path)
    for segment in _segments(folder, which):
        found = _compare_segment(config, folder, segment)
        yield Verdict(str(segment), found, surroundings(folder, config) if found else [])


def surroundings(folder: RunFolder, config: RunConfig) -> list[str]:
    """What differs between the machine that made the run and this one."""
    manifest = folder.manifest()
    then = {**manifest.get("versions", {}), **manifest.get("machine", {}), **manifest.get("git", {})}
    now = {**versions(), **machine(), **git_commit()}
    changed = [f"{key}: {then.get(key)} -> {now.get(key)}" for key in {**then, **now} if then.get(key) != now.get(key)]
    settings = config.backend
    return [*changed, f"device {settings.device}, threads {settings.threads}"]


def _segments(folder: RunFolder, which: str) -> list[Segment]:
    known = CheckpointFolder(folder.path).all()
    if not known:
        raise RunError(f"The run '{folder.name}' has no checkpoint to compare with.", "Let it train until its first.")
    for checkpoint in known:
        checkpoint.check()
    segments = [Segment(start, end) for start, end in zip([None, *known[:-1]], known, strict=True)]
    return {"all": segments, "first": segments[:1], "last": segments[-1:]}[which]


def _compare_segment(config: RunConfig, folder: RunFolder, segment: Segment) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="reverie-verify-") as name:
        scratch = RunFolder(Path(name))
        logs = JsonlSink(scratch.path)
        session = build(config, [logs])
        shelf = PolicyShelf(scratch)
        checkpointer = Checkpointer(scratch, config.checkpoint, session, shelf, logs)
        evaluator = build_evaluator(config)
        try:
            if segment.start is not None:
                load_checkpoint(checkpointer, segment.start)
            Orchestrator(session, evaluator, [shelf], lambda: _is_at(session, segment.end)).run()
            logs.sync()
            differences = _compare_logs(folder, scratch, segment)
            states = {name: part.state() for name, part in checkpointer.parts().items()}
            return differences + _compare_states(states, segment.end)
        finally:
            evaluator.close()
            session.close()


def _is_at(session: Session, checkpoint: Checkpoint) -> bool:
    """Whether the session stands exactly where the checkpoint was made, or has missed it."""
    counters = session.counters.state()
    if counters["cycles"] > checkpoint.counters["cycles"]:
        return True
    return counters == checkpoint.counters and session.scheduler.state() == checkpoint.read("scheduler")


def _compare_logs(folder: RunFolder, scratch: RunFolder, segment: Segment) -> list[str]:
    differences = []
    for kind in COMPARED_LOGS:
        begin = segment.start.summary["logs"][kind] if segment.start else 0
        end = segment.end.summary["logs"][kind]
        before, after = ((run.path / f"{kind}.jsonl").read_bytes() for run in (folder, scratch))
        if before[begin:end] != after:
            (scratch.path / "expected.jsonl").write_bytes(before[begin:end])
            differences.append(f"{kind}: {_first_difference(scratch, kind)}")
    return differences


def _first_difference(scratch: RunFolder, kind: str) -> str:
    expected, found = (read_jsonl(scratch.path / f"{name}.jsonl") for name in ("expected", kind))
    for old, new in zip(expected, found, strict=False):
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if keys:
            place = f"env step {old.get('env_steps')}" + (f", update {old['updates']}" if "updates" in old else "")
            return f"first at {place}: {', '.join(f'{k} {old.get(k)} -> {new.get(k)}' for k in keys[:3])}"
    return f"{len(expected)} lines became {len(found)}"


def _compare_states(states: dict[str, State], end: Checkpoint) -> list[str]:
    differences = []
    for name, state in states.items():
        path = next(first_difference(end.read(name), state), None)
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
    """A leaf as it would come back from disk."""
    if hasattr(node, "detach"):
        node = node.detach().cpu().numpy()
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, Sealed):
        return node.arrays
    if isinstance(node, list | tuple):
        return {str(i): value for i, value in enumerate(node)}
    return {str(key): value for key, value in node.items()} if isinstance(node, dict) else node
