"""Goes on with a run: which checkpoint, which settings change, and whether the result stays exact."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from reverie.config.checks import check_config
from reverie.config.compose import Composed, override_assignments
from reverie.config.files import config_to_tree, config_to_yaml, read_config
from reverie.config.resolve import set_budget
from reverie.config.schema import RunConfig
from reverie.config.tree import Tree, join_path, leaves
from reverie.config.validate import load_config
from reverie.core.errors import RunError
from reverie.runs.checkpoint import Checkpoint, CheckpointFolder
from reverie.runs.execute import Execution
from reverie.runs.folder import RunFolder, machine, versions

KEEP_EXACT = ("phases.*.duration_*", "phases.*.until*", "checkpoint.*", "evaluate.final_episodes", "early_stop")
"""Settings that decide how long a run goes on or what is kept, not what happens at any step of it."""


@dataclass(frozen=True)
class Change:
    """One setting that a resume changes."""

    key: str
    old: Any
    new: Any
    keeps_exactness: bool

    def __str__(self) -> str:
        verdict = "the run stays exact" if self.keeps_exactness else "from here on it is another run"
        return f"  {self.key}: {self.old} -> {self.new}  ({verdict})"


def resume_run(
    folder: RunFolder,
    overrides: list[str],
    steps: int | None = None,
    checkpoint: str | None = None,
    quiet: bool = False,
) -> Execution:
    """Continue from the newest sound checkpoint, or from the one named."""
    config = read_config(folder.config_path)
    new_config, changes = change_config(config, overrides, steps)
    start, notes = choose_checkpoint(folder, checkpoint)
    notes += [f"Changed settings:\n{chr(10).join(map(str, changes))}"] if changes else []
    notes += _differences(start)
    execution = Execution(new_config, folder, quiet)
    execution.before_start = lambda: _record(folder, config, new_config, changes, start)
    execution.start(start, tuple(notes))
    return execution


def change_config(config: RunConfig, overrides: list[str], steps: int | None) -> tuple[RunConfig, list[Change]]:
    """The config with overrides, and what they change."""
    old = config_to_tree(config)
    composed = Composed(tree=config_to_tree(config))
    composed.apply(override_assignments(overrides), "command line")
    tree = composed.tree if steps is None else set_budget(composed.tree, steps, composed.sources)
    # The horizon of schedules stays as it was fixed when the run was created.
    new_config = load_config(tree, composed.sources)
    check_config(new_config, composed.sources)
    return new_config, compare_trees(old, config_to_tree(new_config))


def compare_trees(old: Tree, new: Tree) -> list[Change]:
    """Every leaf that differs."""
    before, after = ({join_path(path): value for path, value in leaves(tree)} for tree in (old, new))
    changed = [key for key in (*before, *(k for k in after if k not in before)) if before.get(key) != after.get(key)]
    return [Change(key, before.get(key), after.get(key), keeps_exactness(key)) for key in changed]


def keeps_exactness(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in KEEP_EXACT)


def choose_checkpoint(folder: RunFolder, name: str | None) -> tuple[Checkpoint | None, list[str]]:
    """Where to go on, and what the user should know about it."""
    checkpoints = CheckpointFolder(folder.path)
    if name is not None:
        chosen = checkpoints.find(name)
        chosen.check()
        return chosen, []
    newest, complaints = checkpoints.newest_sound()
    notes = [f"Passed over a damaged checkpoint: {complaint}" for complaint in complaints]
    if newest is None:
        if complaints:
            raise RunError(
                f"No checkpoint of '{folder.name}' is sound:\n" + "\n".join(complaints),
                "Start a new run; this one's config.yaml and metrics are still there to read.",
            )
        notes.append("There is no checkpoint yet: starting from the beginning.")
    return newest, notes


def _differences(checkpoint: Checkpoint | None) -> list[str]:
    """What has changed around the run since it was saved; any of it may change bits."""
    if checkpoint is None:
        return []
    now, then = versions(), checkpoint.summary.get("versions", {})
    changed = [f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name]]
    return [f"Other versions than when it was saved, so bits may differ: {', '.join(changed)}"] if changed else []


def _record(folder: RunFolder, old: RunConfig, new: RunConfig, changes: list[Change], start: Checkpoint | None) -> None:
    """Write down that and how the run was resumed; a changed config replaces the old one, which stays beside it."""
    path = folder.path / "resumes.jsonl"
    number = len(path.read_text().splitlines()) + 1 if path.exists() else 1
    entry = {
        "number": number, "time": time.time(), "checkpoint": start.name if start else None,
        "changes": [asdict(change) for change in changes], "versions": versions(), "machine": machine(),
    }  # fmt: skip
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    if changes:
        (folder.path / f"config-before-resume-{number}.yaml").write_text(config_to_yaml(old), encoding="utf-8")
        folder.config_path.write_text(config_to_yaml(new), encoding="utf-8")
