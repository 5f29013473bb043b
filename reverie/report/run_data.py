"""Reads everything that a report shows from a run folder, in one pass, and notes what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reverie.core.counters import Budget
from reverie.core.types import Array
from reverie.report.foresight_data import Foresight, read_foresight
from reverie.report.log_summaries import (
    FARTHEST,
    MOST_ALERTS,
    Alert,
    Episodes,
    Evaluation,
    Evaluations,
    Machine,
    Metrics,
    position_of,
    read_alert,
)
from reverie.report.safe_files import Lines, as_number, plain_path, read_bytes, read_mapping
from reverie.report.settings import Settings, read_settings
from reverie.store import documents
from reverie.store.documents import Unreadable

LARGEST_VIDEO = 8 << 20
ALERTS = ("alerts.jsonl", "machine_alerts.jsonl")
VIDEOS = ("best", "last")
MP4_MARK = b"ftyp"


@dataclass(frozen=True)
class Video:
    """A video of the run. ``data`` is None if the file is too large to embed in the page."""

    which: str
    name: str
    data: bytes | None


@dataclass
class RunData:
    """The content of a run folder."""

    path: Path
    status: dict[str, Any]
    manifest: dict[str, Any]
    settings: Settings
    evaluations: Evaluations = field(default_factory=Evaluations)
    episodes: Episodes = field(default_factory=Episodes)
    metrics: Metrics = field(default_factory=Metrics)
    machine: Machine = field(default_factory=Machine)
    alerts: list[Alert] = field(default_factory=list)
    num_alerts: int = 0
    videos: list[Video] = field(default_factory=list)
    foresight: Foresight | None = None
    problems: list[str] = field(default_factory=list)
    axis: str = "env_steps"
    reached: float = 0.0
    frames: int = 0
    """Env steps times action repeat. 0 for runs of older versions, which did not count frames."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def env(self) -> str:
        spec = str(self.manifest.get("spec") or "")
        return self.settings.text("env", "id") or spec.rpartition(":")[0] or "unknown env"

    @property
    def algorithm(self) -> str:
        return self.settings.text("algorithm", "kind") or "unknown algorithm"

    @property
    def seed(self) -> str:
        return self.settings.text("seed") or str(self.manifest.get("seed", "unknown"))

    @property
    def state(self) -> str:
        return str(self.status.get("state") or "unknown state")

    def positions(self, by: str) -> Array:
        """The positions of all evaluations in env steps, updates or minutes of training (``wall``)."""
        rows = sorted(self.evaluations.rows, key=lambda row: row.x)
        x = np.array([row.x if by != "updates" or row.updates is None else row.updates for row in rows])
        if by != "wall":
            return x
        times = np.array(self.machine.times or [(0.0, 0.0)])
        minutes: Array = np.interp(x, times[:, 0], times[:, 1]) / 60
        return minutes

    @property
    def done(self) -> int:
        """Progress on the run's axis."""
        return int(max(as_number(self.status.get(self.axis)) or 0, self.reached))

    @property
    def amount(self) -> str:
        steps = Budget(self.axis).amount(self.done)
        return f"{steps} ({self.frames:,} frames)" if self.axis == "env_steps" and self.frames > self.done else steps

    @property
    def unit(self) -> str:
        """The unit of the run's axis."""
        return Budget(self.axis).unit

    @property
    def budget(self) -> int | None:
        steps = as_number(self.settings.tree.get("horizon_steps")) if self.axis == "env_steps" else None
        return int(steps) if steps else None

    @property
    def solved_at(self) -> float | None:
        """The return that counts as solved, if the env has one."""
        return as_number(self._env_spec.get("solved_at"))

    @property
    def random_return(self) -> float | None:
        """The return of random play, if it is known."""
        return as_number(self._env_spec.get("random"))

    @property
    def reference_range(self) -> tuple[float, float] | None:
        """The returns that count as 0 and 1 in normalised scores: of random play, and a reference. None if unknown."""
        low, high = self.random_return, as_number(self._env_spec.get("reference"))
        return (low, high) if low is not None and high is not None and low != high else None

    @property
    def _env_spec(self) -> dict[str, Any]:
        """What the config says about the env. A damaged one says nothing."""
        env = self.settings.tree.get("env")
        spec = env.get("spec") if isinstance(env, dict) else None
        return spec if isinstance(spec, dict) else {}

    @property
    def final_score(self) -> float | None:
        """The score of the final evaluation, or else of the last one so far."""
        score = as_number(self.status.get("final_score"))
        last = self.evaluations.last
        return score if score is not None else (last.mean if last else None)

    @property
    def has_final(self) -> bool:
        """Whether the run finished and has a final evaluation."""
        return self.state == "finished" and as_number(self.status.get("final_score")) is not None

    @property
    def best_score(self) -> float | None:
        best = self.evaluations.best
        return best.mean if best else as_number(self.status.get("best_score"))

    @property
    def final_evaluation(self) -> Evaluation | None:
        """The evaluation of the final score."""
        last = self.evaluations.last
        return last if last is not None and last.mean == self.final_score else None


def gather(path: Path, with_videos: bool = True) -> RunData:
    """Read a run folder. Damaged or missing files are noted in ``problems``, never raised."""
    problems: list[str] = []
    run = RunData(
        path, read_mapping(path, "status.json", problems), read_mapping(path, "manifest.json", problems),
        read_settings(path, problems), problems=problems,
    )  # fmt: skip
    run.axis = _choose_axis(path)
    run.machine = Machine(run.axis)
    _read_metrics(run)
    for record in Lines(path, "scores.jsonl", problems):
        run.episodes.add(record)
    for record in Lines(path, "machine.jsonl", problems):
        run.machine.add(record)
    for name in ALERTS:
        for record in Lines(path, name, problems):
            run.num_alerts += 1
            if len(run.alerts) < MOST_ALERTS:
                run.alerts.append(read_alert(record, run.axis))
    run.videos = _find_videos(run) if with_videos else []
    run.foresight = read_foresight(run.path, problems) if with_videos else None
    run.problems += _what_is_missing(run)
    return run


def _read_metrics(run: RunData) -> None:
    for record in Lines(run.path, "metrics.jsonl", run.problems, never_skip=b'"evaluate/'):
        x = position_of(record, run.axis)
        if x is None:
            continue
        run.reached = max(run.reached, x)
        run.frames = max(run.frames, int(min(as_number(record.get("frames")) or 0, FARTHEST)))
        run.metrics.add(record, x)
        if "evaluate/return_mean" in record:
            run.evaluations.add(record, x)


def _choose_axis(path: Path) -> str:
    """Env steps, or updates for a run that only learns from stored data."""
    try:
        file = plain_path(path, "metrics.jsonl")
        ends = _first_and_last(file) if file else []
    except (OSError, ValueError):
        return "env_steps"
    if len(ends) == 2 and all(isinstance(end, dict) for end in ends):
        steps, updates = ([as_number(end.get(key)) for end in ends] for key in ("env_steps", "updates"))
        if steps[0] == steps[1] and None not in updates and updates[0] != updates[1]:
            return "updates"
    return "env_steps"


def _first_and_last(path: Path) -> list[Any]:
    with documents.open_file(path) as file:
        first = file.readline(1 << 20)
        file.seek(0, 2)
        file.seek(max(0, file.tell() - (1 << 20)))
        lines = file.read(1 << 20).split(b"\n")[:-1]
    return [documents.parse_json(line) for line in (first, lines[-1])] if lines else []


def _find_videos(run: RunData) -> list[Video]:
    found = []
    for which in VIDEOS:
        name = f"videos/{which}.mp4"
        try:
            path = plain_path(run.path, name)
        except Unreadable as error:
            run.problems.append(str(error))
            continue
        if path is None:
            continue
        is_small = path.stat().st_size <= LARGEST_VIDEO
        data = read_bytes(run.path, name, run.problems, LARGEST_VIDEO) if is_small else None
        if data is not None and data[4:8] != MP4_MARK:
            run.problems.append(f"{name} is not an MP4 file.")
        else:
            found.append(Video(which, name, data))
    return found


def _what_is_missing(run: RunData) -> list[str]:
    missing = [
        f"{name} is missing: {loss}."
        for name, loss in (
            ("status.json", "the state of the run is unknown"),
            ("manifest.json", "the machine and the versions are unknown"),
            ("metrics.jsonl", "there are no curves"),
        )
        if not (run.path / name).exists()
    ]
    if run.state not in ("finished", "unknown state"):
        missing.append(f"The run is not finished. Its state is '{run.state}'.")
    if run.final_score is None:
        missing.append("The run has not been evaluated yet, so there is no score.")
    not_finite = sum(series.not_finite for series in run.metrics.curves.values())
    if not_finite:
        missing.append(f"Metric values left out of the charts because they are NaN or infinite: {not_finite:,}.")
    if run.settings.tree and not run.settings.has_sources:
        missing.append("The run did not record where its settings came from.")
    return missing
