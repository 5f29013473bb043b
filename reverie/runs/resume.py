"""Continue a run: choose the checkpoint, apply changed settings, and record whether the run stays exact."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from reverie.config.files import config_to_tree, config_to_yaml, read_config
from reverie.config.path_names import PathNames, named_leaves
from reverie.config.phases import Phase, flatten_phases
from reverie.config.pipeline import Prepared, change_saved, check, read_saved
from reverie.config.schema import RunConfig
from reverie.config.secrets import hide
from reverie.config.tree import Tree
from reverie.core import registry
from reverie.core.errors import OutOfMemoryError, RunError
from reverie.core.traits import algorithm_traits
from reverie.core.wording import count
from reverie.machine.processor import BLAS_KERNELS
from reverie.runs.assemble import build_first, filled_buffers
from reverie.runs.execute import Execution
from reverie.runs.history import BEGINNING, Goal, read_history
from reverie.runs.policies import PolicyShelf
from reverie.runs.resume_command import spent_schedules
from reverie.store.checkpoint import Checkpoint, CheckpointFolder
from reverie.store.lock import lock_run
from reverie.store.run_folder import RunFolder, machine, versions, write_text
from reverie.store.signature import sign_config
from reverie.store.trash import is_cleaned, restore_hint

MOST_MICROBATCHES = 64
KEEP_EXACT = (
    "{last}.duration_*", "{last}.until*", "early_stop", "evaluate.final_episodes", "evaluate.foresight.*",
    "checkpoint.*", "log.csv", "log.tensorboard", "log.wandb*", "log.loggers*", "log.rules*", "log.show*", "log.report",
    "monitor.*", "preflight.*", "video.*", "buffers.*.storage", "env.max_crashes", "env.replay_steps",
)  # fmt: skip
"""Settings that change how long the last phase runs or what is kept, but no single step."""


@dataclass(frozen=True)
class Change:
    """One setting that a resume changes."""

    key: str
    old: Any
    new: Any
    keeps_exactness: bool

    def __str__(self) -> str:
        verdict = "continues bit for bit" if self.keeps_exactness else "no longer exact"
        return f"  {self.key}: {self.old} -> {self.new}  ({verdict})"


def resume_run(
    folder: RunFolder,
    overrides: list[str],
    steps: int | None = None,
    checkpoint: str | None = None,
    quiet: bool = False,
) -> Execution:
    """Continue from the newest sound checkpoint, or from the one named."""
    with lock_run(folder.path):  # first: another process must not change the run meanwhile
        return _resume_locked(folder, overrides, steps, checkpoint, quiet)


def _resume_locked(
    folder: RunFolder, overrides: list[str], steps: int | None, checkpoint: str | None, quiet: bool
) -> Execution:
    saved = read_saved(folder.config_path)
    prepared, changes = change_config(saved, overrides, steps)
    config, new_config = saved.config, prepared.config
    execution = Execution(prepared, folder, quiet)
    if not changes and checkpoint is None and folder.status().get("state") == "finished":
        execution.say_finished()
        return execution
    start, notes = choose_checkpoint(folder, checkpoint)
    check(prepared, filled_buffers(config, start))
    execution.built = build_first(prepared, is_new=start is None)
    if changes and steps is not None and start is not None:
        _check_budget(config, new_config, steps, start)
    notes += prepared.composed.notes
    notes += [f"Changed settings:\n{chr(10).join(map(str, changes))}"] if changes else []
    notes += [*_differences(folder, start), *spent_schedules(new_config)]

    def prepare() -> None:
        if start is not None:
            CheckpointFolder(folder.path).drop_newer(start)
            PolicyShelf(folder).drop_final_after(start.place)
        _record(folder, config, new_config, changes, start)

    execution.before_start = prepare
    execution.changed = tuple(change.key for change in changes if not change.keeps_exactness)
    execution.start(start, tuple(notes))
    return execution


def resume_with_more_microbatches(folder: RunFolder, error: OutOfMemoryError, quiet: bool) -> Execution:
    """After memory ran out: continue from the last checkpoint, doubling the microbatches until updates fit."""
    while True:
        config = read_config(folder.config_path)
        microbatches = 2 * config.backend.microbatches
        can_split = algorithm_traits(config.algorithm.kind).microbatches
        if not can_split or microbatches > MOST_MICROBATCHES:
            raise error
        try:
            return resume_run(folder, [f"backend.microbatches={microbatches}"], quiet=quiet)
        except OutOfMemoryError as again:
            error = again


def check_same_run(folder: RunFolder, spec: str, seed: int | None, words: list[str]) -> None:
    """For ``train <spec> --resume RUN``: refuse another spec or seed, and presets. Overrides may change settings."""
    manifest = folder.manifest()
    if spec != manifest.get("spec"):
        fix = f"Write {manifest.get('spec')}, or: reverie resume {folder.words}"
        raise RunError(f"The run '{folder.name}' trains {manifest.get('spec')}, not {spec}.", fix)
    if seed is not None and seed != manifest.get("seed"):
        fix = "Leave --seed out, or start a new run without --resume."
        raise RunError(f"The run '{folder.name}' has the seed {manifest.get('seed')}, not {seed}.", fix)
    if presets := [word for word in words if "=" not in word]:
        fix = "Name the settings to change as key=value."
        raise RunError(f"A preset cannot be added to a run that exists: {', '.join(presets)}.", fix)


def change_config(saved: Prepared, overrides: Sequence[str], steps: int | None = None) -> tuple[Prepared, list[Change]]:
    """The config with overrides, and the changes."""
    if not overrides and steps is None:
        return saved, []
    prepared = change_saved(saved, overrides, steps)
    return prepared, compare_configs(saved.config, prepared.config)


def compare_configs(old: RunConfig, new: RunConfig) -> list[Change]:
    """Every leaf that differs. Loops are unrolled first: a budget may unroll them without changing the run."""
    phases, new_phases = list(flatten_phases(old.phases)), list(flatten_phases(new.phases))
    shared = min(len(phases), len(new_phases))
    before = dict(named_leaves(_tree(old, phases[:shared])))
    after = dict(named_leaves(_tree(new, new_phases[:shared])))
    changed = [key for key in (*before, *(k for k in after if k not in before)) if before.get(key) != after.get(key)]
    keys, new_keys = (PathNames(_tree(*side)) for side in ((old, phases), (new, new_phases)))
    patterns = [pattern.format(last=new_keys.shown(("phases", str(shared - 1)))) for pattern in KEEP_EXACT]
    changes = [
        Change(key, hide(key, before.get(key)), hide(key, after.get(key)), any(fnmatchcase(key, p) for p in patterns))
        for key in changed
    ]
    dropped = [Change(keys.shown(("phases", str(i))), phases[i].name, None, True) for i in range(shared, len(phases))]
    added = [
        Change(new_keys.shown(("phases", str(i))), None, new_phases[i].name, False)
        for i in range(shared, len(new_phases))
    ]
    return [*changes, *dropped, *added]


def _tree(config: RunConfig, phases: list[Phase]) -> Tree:
    return {**config_to_tree(config), "phases": [phase.model_dump(mode="json") for phase in phases]}


def _check_budget(old: RunConfig, new: RunConfig, steps: int, start: Checkpoint) -> None:
    """Refuse a budget that ends before the checkpoint, or changes a phase that is over."""
    done = start.counters["env_steps"]
    if steps < done:
        fix = "Give more, or go back with --checkpoint as well."
        raise RunError(f"The run already has {count(done, 'env step')}, more than {steps:,}.", fix)
    phases, new_phases = list(flatten_phases(old.phases)), list(flatten_phases(new.phases))
    pairs = enumerate(zip(phases, new_phases, strict=False))
    changed = next((number for number, (before, after) in pairs if before != after), len(new_phases))
    index = start.read("scheduler").get("index")
    if isinstance(index, int) and (changed < index or len(new_phases) <= index):
        last = phases[min(changed, len(new_phases) - 1)].name
        raise RunError(
            f"A budget of {count(steps, 'env step')} changes how long the phase '{last}' lasts, which is over.",
            "Go back to a checkpoint inside that phase with --checkpoint as well.",
        )


def choose_checkpoint(folder: RunFolder, name: str | None) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to continue from, and notes for the user."""
    checkpoints = CheckpointFolder(folder.path)
    if name is not None:
        chosen = checkpoints.find(name)
        chosen.check()
        newer = ", ".join(path.name for path in checkpoints.newer_than(chosen))
        return chosen, [f"Going back deletes the later checkpoints: {newer}"] if newer else []
    newest, complaints = checkpoints.newest_sound()
    notes = [f"Skipped a damaged checkpoint: {complaint}" for complaint in complaints]
    if newest is None:
        if complaints:
            raise RunError(
                f"All checkpoints of '{folder.name}' are damaged:\n" + "\n".join(complaints),
                "Start a new run; config.yaml and the metrics of this one can still be read.",
            )
        _check_never_saved(folder)
        notes.append("There is no checkpoint yet: starting from the beginning.")
    return newest, notes


def _check_never_saved(folder: RunFolder) -> None:
    """Refuse to restart a run that has results, because that would delete them."""
    status = folder.status()
    was_resumed = any(resumption.position != BEGINNING for resumption in read_history(folder.path))
    is_saved = status.get("checkpoint") or status.get("state") in ("finished", "stopped") or was_resumed
    if not is_saved and not (folder.path / "policies" / "final").exists():
        return
    if is_cleaned(folder.path):
        raise RunError(f"The checkpoints of '{folder.name}' were removed.", restore_hint(folder.path))
    spec, has_policy = folder.manifest().get("spec"), any((folder.path / "policies").glob("*/policy.json"))
    start = f"reverie train {spec}" + (f" --init-from {folder.words}" if has_policy else "")
    raise RunError(
        f"The checkpoints of '{folder.name}' are gone, so it cannot continue. Starting again would delete its metrics "
        "and policies.",
        (f"Start a new run from its best policy: {start}" if has_policy else f"Start a new run: {start}")
        + ". Or restore the folder 'checkpoints'.",
    )


def _differences(folder: RunFolder, checkpoint: Checkpoint | None) -> list[str]:
    """Notes about changes since the run was saved: versions, which may change bits, and missing lines of logs."""
    if checkpoint is None:
        return []
    now, then = versions(), checkpoint.summary.get("versions", {})
    changed = [name for name in now if name in then and then[name] != now[name]]
    listed = ", ".join(f"{name} {then[name]} -> {now[name]}" for name in changed)
    notes = [f"Versions have changed since the run was saved, so bits may differ: {listed}"] if changed else []
    if "blas" in changed:
        notes.append(f"(blas: the kernels of numpy's matmuls, chosen by the processor or by {BLAS_KERNELS})")
    for kind, size in checkpoint.summary["logs"].items():
        path = folder.path / f"{kind}.jsonl"
        if (path.stat().st_size if path.exists() else 0) < size:
            notes.append(
                f"{path.name} is shorter than when the run was saved: lines are missing. Training is not affected."
            )
    return notes


def _record(folder: RunFolder, old: RunConfig, new: RunConfig, changes: list[Change], start: Checkpoint | None) -> None:
    """Record the resume. A changed config replaces the old one, which is kept beside it."""
    path = folder.path / "resumes.jsonl"
    number = len(path.read_text().splitlines()) + 1 if path.exists() else 1
    entry = {
        "number": number, "time": time.time(), "checkpoint": start.name if start else None,
        "changes": [asdict(change) for change in changes], "versions": versions(), "machine": machine(),
    }  # fmt: skip
    if start is not None:  # verify needs this position after the checkpoint is deleted
        entry |= asdict(Goal.of(start))
    # In this order, a crash in between leaves a history that still shows which config applied when.
    if changes:
        write_text(folder.path / f"config-before-resume-{number}.yaml", config_to_yaml(old))
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    if changes:
        if registry.is_own():
            sign_config(folder.path, config_to_yaml(old), config_to_yaml(new))
        write_text(folder.config_path, config_to_yaml(new))
