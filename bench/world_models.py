"""The table of world models in docs/scores.md: one record per seed, from finished runs of any checkout.

``python -m bench scores --from RUNS`` evaluates the best policy of every finished run below the folder RUNS that
belongs to a task of :data:`TASKS`, and records the result in ``bench/world_models.jsonl``, with the commit that
trained it. A row needs the number of seeds of its task, none of which its settings were chosen on. Until then it is
listed under "Not yet shown".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from reverie.envs.action_repeat import action_repeat
from reverie.envs.config import EnvConfig

RECORDS = Path(__file__).parent / "world_models.jsonl"
TITLE = "\n## World models\n"
HEAD = """| task | seeds | env steps | frames | score per seed | mean | to reach | official | core-hours each | commit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
ABOUT = """
Dreamer, or the algorithm that a task names: each seed's best policy over 100 episodes as above. Published curves count
frames. Core-hours are the CPU time
of the training process. "Official" is the score in DreamerV3's own score files (lowest and highest seed).
"""


@dataclass(frozen=True)
class Task:
    """A row of the table: which runs belong to it, and the score they must reach."""

    spec: str
    goal: float
    frames: int
    """Frames of a run, within 5 %."""
    images: bool = False
    seeds: int = 3
    official: str = "-"


TASKS = {
    "CartPole-v1": Task("CartPole-v1:dreamer", 450, 20_000, seeds=5),
    "Reverie/Motion-v0, pixels": Task("Reverie/Motion-v0:dreamer", 27.9, 12_000, images=True, seeds=10),
    "dmc/cartpole_swingup, states": Task("dmc/cartpole_swingup:dreamer", 800, 60_000, official="513 at 100k (499-544)"),
    "dmc/walker_walk, states": Task("dmc/walker_walk:dreamer", 520, 100_000, official="518 (281-745)"),
    "dmc/walker_stand, pixels": Task("dmc/walker_stand:dreamer", 729, 100_000, True, official="911 (882-952)"),
    "dmc/ball_in_cup_catch, pixels": Task(
        "dmc/ball_in_cup_catch:dreamer", 702, 100_000, True, official="877 (552-954)"
    ),
    "dmc/cartpole_swingup, pixels": Task("dmc/cartpole_swingup:dreamer", 500, 100_000, True, official="615 (342-819)"),
    "Pendulum-v1, TD-MPC2 size1m": Task("Pendulum-v1:tdmpc2", -200, 10_000),
    "dmc/cartpole_swingup, states, TD-MPC2 size1m": Task("dmc/cartpole_swingup:tdmpc2", 750, 60_000),
    "dmc/cartpole_swingup, states, TD-MPC": Task("dmc/cartpole_swingup:tdmpc", 700, 100_000, seeds=1),
    "dmc/cartpole_swingup, states, PlaNet": Task("dmc/cartpole_swingup:planet", 650, 100_000, seeds=1),
}


@dataclass(frozen=True)
class Record:
    """One seed of one task."""

    task: str
    seed: int
    score: float
    env_steps: int
    frames: int
    core_hours: float
    commit: str
    is_tuned_on: bool = False
    """The settings may have been chosen by runs with this seed."""


def find_runs(root: Path) -> Iterator[Path]:
    """Folders of finished runs below ``root``, in order."""
    for manifest in sorted(root.rglob("manifest.json")):
        status = manifest.with_name("status.json")
        if status.exists() and json.loads(status.read_text()).get("state") == "finished":
            yield manifest.parent


def record_runs(root: Path, evaluate: Callable[[Path, int], float]) -> list[Record]:
    """Records of all finished runs below ``root`` that belong to a task. Known runs are not evaluated again."""
    known = read_records()
    for run in find_runs(root):
        found = describe(run)
        if found is None or any(is_same_run(record, found) for record in known):
            continue
        known.append(Record(**{**asdict(found), "score": evaluate(run, found.seed)}))
        write_records(known)
        print(f"{found.task}, seed {found.seed}: {known[-1].score:.2f}", flush=True)
    return known


def is_same_run(one: Record, other: Record) -> bool:
    return (one.task, one.seed, one.commit) == (other.task, other.seed, other.commit)


def describe(run: Path) -> Record | None:
    """The record of a finished run, without its score. None if it belongs to no task."""
    manifest = json.loads((run / "manifest.json").read_text())
    config = yaml.safe_load((run / "config.yaml").read_text())
    lines = read_lines(run / "metrics.jsonl")
    env_steps = int(lines[-1]["env_steps"]) if lines else 0
    frames = env_steps * action_repeat(EnvConfig.model_validate(config["env"]))
    task = find_task(str(manifest["spec"]), uses_images(config, str(manifest["spec"])), frames)
    git = manifest.get("git") or {}
    if task is None or not git.get("commit"):
        return None
    commit = git["commit"][:7] + ("" if git.get("is_clean") else "-dirty")
    return Record(task, int(manifest["seed"]), 0.0, env_steps, frames, core_hours(run), commit)


def find_task(spec: str, images: bool, frames: int) -> str | None:
    for name, task in TASKS.items():
        if (task.spec, task.images) == (spec, images) and abs(frames / task.frames - 1) <= 0.05:
            return name
    return None


def uses_images(config: dict[str, Any], spec: str) -> bool:
    return spec.startswith("Reverie/Motion") or bool((config["env"].get("kwargs") or {}).get("image"))


def core_hours(run: Path) -> float:
    """CPU time of a run over all its processes. The counter restarts in each."""
    seconds = [float(line.get("usage/cpu_seconds", 0.0)) for line in read_lines(run / "machine.jsonl")]
    ends = [now for now, then in zip(seconds, [*seconds[1:], 0.0], strict=True) if then < now]
    return sum(ends) / 3600


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_records() -> list[Record]:
    return [Record(**line) for line in read_lines(RECORDS)]


def write_records(records: Sequence[Record]) -> None:
    RECORDS.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def make_section(records: Sequence[Record]) -> str:
    """Both tables: tasks with enough seeds, and the others."""
    shown, early, absent = [], [], []
    for name, task in TASKS.items():
        found = sorted((record for record in records if record.task == name), key=lambda record: record.seed)
        fresh = [record for record in found if not record.is_tuned_on]
        if len({record.seed for record in fresh}) >= task.seeds:
            shown.append(make_row(name, fresh))
        elif found:
            early.append(make_row(name, found))
        else:
            absent.append(name)
    waiting = f"\nNo run yet: {', '.join(absent)}.\n" if absent else ""
    parts = [TITLE, ABOUT, table(shown), "\n### Not yet shown\n\nFewer seeds than wanted, or seeds that settings ",
             "may have been chosen on (with an asterisk).\n", table(early), waiting]  # fmt: skip
    return "".join(parts)


def table(rows: Sequence[str]) -> str:
    return "\n" + HEAD + "\n".join(rows) + "\n" if rows else "\nNone.\n"


def make_row(name: str, records: Sequence[Record]) -> str:
    task, scores = TASKS[name], [record.score for record in records]
    cells = [
        name, ", ".join(f"{record.seed}{'*' if record.is_tuned_on else ''}" for record in records),
        f"{max(record.env_steps for record in records):,}", f"{max(record.frames for record in records):,}",
        ", ".join(f"{score:.1f}" for score in scores), f"{np.mean(scores):.1f}", f"{task.goal:g}", task.official,
        f"{np.mean([record.core_hours for record in records]):.2f}",
        ", ".join(dict.fromkeys(record.commit for record in records)),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"
