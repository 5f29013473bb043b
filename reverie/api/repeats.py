"""Train the experiment of a run again with another seed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.api.run import Run, RunLike, locate, trusting
from reverie.api.training import start_execution
from reverie.config.typed import PYTHON, typed_in
from reverie.core.errors import ConfigError

if TYPE_CHECKING:
    from reverie.runs.execute import Execution
    from reverie.store.run_folder import RunFolder

_NUMBERED = re.compile(r"-s\d+-\d+$")


def repeat(target: RunLike, seed: int, runs_dir: str | Path = "runs", quiet: bool = True, trust: bool = False) -> Run:
    """Train a new run with the config.yaml of an existing one and another seed."""
    from reverie.store.run_folder import RunFolder

    source = RunFolder(locate(target, runs_dir))
    _check_repeatable(source)
    with typed_in(PYTHON), trusting(trust, source.path):
        return start_execution(_prepare(source, seed, quiet))


def _check_repeatable(source: RunFolder) -> None:
    """Refuse runs whose config.yaml alone does not say how they were trained."""
    from reverie.runs.history import read_history

    name = source.name
    if (source.path / "initial.json").exists():
        fix = "Train it with: reverie train ENV:VARIANT --init-from RUN --seed N"
        raise ConfigError(f"'{name}' started with the weights of another run, so its config does not repeat it.", fix)
    changed = [line for resumption in read_history(source.path) for line in resumption.lines()]
    if changed:
        fix = "Train the settings that you want with: reverie train ENV:VARIANT --seed N"
        raise ConfigError(f"Settings of '{name}' were changed on the way ({changed[0]}), so no run can repeat it.", fix)


def _prepare(source: RunFolder, seed: int, quiet: bool) -> Execution:
    """The new run's folder, with the same sources of settings, so that it joins the same group."""
    from reverie.config.files import config_to_yaml
    from reverie.config.pipeline import change_saved, check, read_saved
    from reverie.preflight.summary import check_start
    from reverie.runs.assemble import build_first
    from reverie.runs.execute import Execution
    from reverie.store import documents
    from reverie.store.run_folder import create_run, removed_if_unwritable, write_json

    prepared = change_saved(read_saved(source.config_path), [f"seed={seed}"])
    check(prepared)
    check_start(prepared.config, prepared.specs)
    built = build_first(prepared)
    spec = str(source.manifest().get("spec", ""))
    yaml, name = config_to_yaml(prepared.config), _NUMBERED.sub("", source.name)
    folder = create_run(source.path.parent, spec, seed, yaml, sys.argv, name)
    recorded = source.path / "sources.json"
    with removed_if_unwritable(folder.path):
        if documents.is_file(recorded):
            write_json(folder.path / recorded.name, documents.read_json(recorded))
    return Execution(prepared, folder, quiet, built)
