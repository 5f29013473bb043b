"""Start, resume and verify runs from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reverie.api.run import Run, RunLike, locate, trusting
from reverie.config.typed import PYTHON, typed_in
from reverie.core.errors import ConfigError, OutOfMemoryError

if TYPE_CHECKING:
    from reverie.config.pipeline import Prepared
    from reverie.config.schema import RunConfig
    from reverie.runs.execute import Execution
    from reverie.runs.verify import Verdict

EnvLike = str | type | Callable[..., Any] | Any
"""``<env>:<variant>``, an env class, a function that makes an env, or an env of ``gymnasium.make``."""


def make_config(
    spec: EnvLike,
    presets_and_overrides: Sequence[str] = (),
    seed: int | None = None,
    steps: float | None = None,
    algorithm: str | type | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The checked config of a new run, with every ``auto`` resolved. Takes the same arguments as :func:`train`."""
    from reverie.config.objects import describe_order, whole_number
    from reverie.config.pipeline import prepare_new

    with typed_in(PYTHON):
        spec, words = describe_order(spec, algorithm, presets_and_overrides, overrides)
        return prepare_new(spec, words, seed, whole_number("steps", steps)).config


def train(
    spec: EnvLike,
    *presets_and_overrides: str,
    algorithm: str | type | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    steps: float | None = None,
    runs_dir: str | Path = "runs",
    quiet: bool = True,
    init_from: RunLike | None = None,
    init_pattern: str = "*",
) -> Run:
    """Train an agent: ``train("CartPole-v1:ppo", seed=1)``, ``train(MyEnv, overrides={"algorithm.gamma": 0.9})``.

    ``spec`` is ``<env>:<variant>``, an env class, a function that makes an env, or an env of ``gymnasium.make``. The
    last three need an ``algorithm``, by name or as a class; the default is ``ppo``. ``overrides`` maps keys to values.
    ``steps`` replaces the budget in env steps. ``init_from`` is a run whose weights are copied where their names match
    ``init_pattern``. The returned :class:`Run` gives access to the run's folder, metrics and policies.
    """
    from reverie.config.objects import describe_order, whole_number
    from reverie.config.pipeline import prepare_new
    from reverie.preflight.summary import check_start

    with typed_in(PYTHON):
        spec, words = describe_order(spec, algorithm, presets_and_overrides, overrides)
        source = None if init_from is None else locate(init_from, runs_dir)
        prepared = prepare_new(spec, words, seed, whole_number("steps", steps), tries_algorithm=False)
        check_start(prepared.config, prepared.specs)
        return start_execution(*_create(spec, prepared, Path(runs_dir), source, init_pattern, quiet))


def _create(
    spec: str, prepared: Prepared, runs_dir: Path, source: Path | None, init_pattern: str, quiet: bool
) -> tuple[Execution, tuple[str, ...]]:
    """Build the algorithm and, if it fits, the run's folder. Returns the execution and notes for the user."""
    from reverie.config.debug_mode import debug_notes
    from reverie.config.files import config_to_yaml
    from reverie.runs.assemble import build_new
    from reverie.runs.execute import Execution
    from reverie.runs.init_from import choose_weights
    from reverie.runs.setting_sources import run_name, write_sources
    from reverie.store.run_folder import create_run, removed_if_unwritable

    prepared, built = build_new(prepared)
    config, composed = prepared.config, prepared.composed
    weights = None if source is None else choose_weights(built.algorithm, source, init_pattern)
    name = run_name(spec, config, composed)
    folder = create_run(runs_dir, spec, config.seed, config_to_yaml(config), sys.argv, name)
    with removed_if_unwritable(folder.path):
        write_sources(folder.path, spec, config, composed)
        if weights is not None:
            weights.save(folder.path)
    notes = (*composed.notes, *debug_notes(composed), *(weights.lines() if weights is not None else ()))
    return Execution(prepared, folder, quiet, built), notes


def start_execution(execution: Execution, notes: tuple[str, ...] = ()) -> Run:
    """Train. If the run is refused before its first step, delete its folder."""
    from reverie.runs.resume import resume_with_more_microbatches
    from reverie.store.lock import lock_run
    from reverie.store.run_folder import remove_unstarted

    folder = execution.folder
    try:
        with lock_run(folder.path):
            execution.start(notes=notes)
    except OutOfMemoryError as error:
        execution = resume_with_more_microbatches(folder, error, execution.quiet)
    except ConfigError:
        remove_unstarted(folder)
        raise
    return Run(folder.path, execution.state, execution.exit_code)


def resume(
    name: RunLike = "@last",
    *words: str,
    overrides: Mapping[str, Any] | None = None,
    steps: float | None = None,
    checkpoint: str | None = None,
    runs_dir: str | Path = "runs",
    quiet: bool = True,
    trust: bool = False,
) -> Run:
    """Continue a run, bit for bit as if it had never stopped.

    ``steps`` replaces the budget in env steps. ``checkpoint`` names a checkpoint by its env steps; the default is the
    newest. ``words`` (``key=value``) and ``overrides`` change settings from there on.
    """
    from reverie.config.objects import as_words, whole_number
    from reverie.runs.resume import resume_run, resume_with_more_microbatches
    from reverie.store.run_folder import RunFolder, refuse_links

    folder = RunFolder(locate(name, runs_dir))
    if not trust:
        refuse_links(folder.path)
    changes = [*words, *as_words(overrides or {})]
    with typed_in(PYTHON), trusting(trust, folder.path, changes):
        budget = whole_number("steps", steps)
        try:
            execution = resume_run(folder, changes, budget, checkpoint, quiet)
        except OutOfMemoryError as error:
            execution = resume_with_more_microbatches(folder, error, quiet)
    return Run(folder.path, execution.state, execution.exit_code)


def verify(
    name: RunLike = "@last",
    segments: Literal["last", "first", "all"] = "last",
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> list[Verdict]:
    """Train segments of a run again and compare every bit. Each verdict has ``is_reproduced``."""
    from reverie.log.progress import quiet_progress
    from reverie.runs.verify import verify_run
    from reverie.store.run_folder import RunFolder

    folder = RunFolder(locate(name, runs_dir))
    with trusting(trust, folder.path), quiet_progress(quiet):
        return list(verify_run(folder, segments))
