"""Reverie from Python: ``train``, ``evaluate``, ``load``, ``find``. The command line is a thin layer over these."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reverie.config.typed import PYTHON, typed_in
from reverie.core import registry
from reverie.core.errors import ConfigError, OutOfMemoryError

if TYPE_CHECKING:
    from reverie.agent import Agent
    from reverie.config.schema import RunConfig
    from reverie.runs.record import Recording
    from reverie.runs.verify import Verdict

Which = Literal["best", "final"]
EnvLike = str | type | Callable[..., Any] | Any
"""``<env>:<variant>``, an env class, a function that makes an env, or an env of ``gymnasium.make``."""


@dataclass(frozen=True)
class Run:
    """A run on disk and how it ended."""

    path: Path
    state: str
    exit_code: int = 0

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def status(self) -> dict[str, Any]:
        """State, env steps, best and final score."""
        from reverie.store.run_folder import RunFolder

        return RunFolder(self.path).status()

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: everything that is reproducible."""
        return self._records("metrics")

    def scores(self) -> list[dict[str, Any]]:
        """One entry per finished episode of collection."""
        return self._records("scores")

    def agent(self, which: Which = "best", trust: bool = False) -> Agent:
        """The trained policy, ready to act."""
        return load(self, which=which, trust=trust)

    def _records(self, kind: str) -> list[dict[str, Any]]:
        from reverie.log.sinks import read_jsonl

        return read_jsonl(self.path / f"{kind}.jsonl")


RunLike = str | os.PathLike[str]
"""A run: its name, ``@last``, ``@best``, its path, or the :class:`Run` itself."""


def make_config(
    spec: EnvLike,
    presets_and_overrides: Sequence[str] = (),
    seed: int | None = None,
    steps: float | None = None,
    algorithm: str | type | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The checked config of a new run, with everything ``auto`` decided; takes what :func:`train` takes."""
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

    ``spec`` is ``<env>:<variant>``; or an env class, a function that makes an env, or an env of ``gymnasium.make``.
    Those go with an ``algorithm``, by name or as a class (``ppo`` if there is none). ``overrides`` maps keys to values.
    ``steps`` is another budget in env steps. The run's folder, metrics and policies are in what is returned.
    ``init_from`` is a run whose weights are taken over where their names match ``init_pattern``.
    """
    from reverie.config.objects import describe_order, whole_number

    with typed_in(PYTHON):
        words = describe_order(spec, algorithm, presets_and_overrides, overrides)
        weights = None if init_from is None else (_locate(init_from, runs_dir), init_pattern)
        return _train(*words, seed, whole_number("steps", steps), Path(runs_dir), quiet, weights)


def _train(
    spec: str,
    words: list[str],
    seed: int | None,
    steps: int | None,
    runs_dir: Path,
    quiet: bool,
    init_from: tuple[Path, str] | None,
) -> Run:
    from reverie.config.debug_mode import debug_notes
    from reverie.config.files import config_to_yaml
    from reverie.config.pipeline import prepare_new
    from reverie.preflight.summary import check_start
    from reverie.runs.execute import Execution
    from reverie.runs.init_from import choose_weights
    from reverie.runs.resume import resume_in_smaller_parts
    from reverie.runs.setting_sources import run_name, write_sources
    from reverie.store.lock import lock_run
    from reverie.store.run_folder import create_run, remove_unstarted, removed_if_unwritable

    prepared = prepare_new(spec, words, seed, steps)
    config, composed = prepared.config, prepared.composed
    check_start(config, prepared.specs)
    weights = choose_weights(prepared, *init_from) if init_from else None
    folder = create_run(runs_dir, spec, config.seed, config_to_yaml(config), sys.argv, run_name(spec, config, composed))
    with removed_if_unwritable(folder.path):
        write_sources(folder.path, spec, config, composed)
        if weights is not None:
            weights.save(folder.path)
    execution = Execution(prepared, folder, quiet)
    try:
        with lock_run(folder.path):
            told = (*composed.notes, *debug_notes(composed), *(weights.lines() if weights is not None else ()))
            execution.start(notes=told)
    except OutOfMemoryError as error:
        execution = resume_in_smaller_parts(folder, error, quiet)
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
    """Go on with a run, bit for bit as if it had never stopped.

    ``steps`` is another budget in env steps, ``checkpoint`` another place than the newest (its env steps). ``words``
    (``key=value``) and ``overrides`` change settings from here on.
    """
    from reverie.config.objects import as_words, whole_number
    from reverie.runs.resume import resume_in_smaller_parts, resume_run
    from reverie.store.run_folder import RunFolder, refuse_links

    folder = RunFolder(_locate(name, runs_dir))
    if not trust:
        refuse_links(folder.path)
    changes = [*words, *as_words(overrides or {})]
    with typed_in(PYTHON), trusting(trust, folder.path, changes):
        budget = whole_number("steps", steps)
        try:
            execution = resume_run(folder, changes, budget, checkpoint, quiet)
        except OutOfMemoryError as error:
            execution = resume_in_smaller_parts(folder, error, quiet)
    return Run(folder.path, execution.state, execution.exit_code)


def verify(
    name: RunLike = "@last",
    segments: Literal["last", "first", "all"] = "last",
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> list[Verdict]:
    """Train a part of a run again and compare every bit; each segment's verdict says ``is_reproduced``."""
    from reverie.log.progress import quiet_progress
    from reverie.runs.verify import verify_run
    from reverie.store.run_folder import RunFolder

    folder = RunFolder(_locate(name, runs_dir))
    with trusting(trust, folder.path), quiet_progress(quiet):
        return list(verify_run(folder, segments))


def load(name: RunLike = "@last", which: Which = "best", runs_dir: str | Path = "runs", trust: bool = False) -> Agent:
    """The trained policy of a run, which is named or what :func:`train` returned: ``load(run).act(observation)``.

    ``trust`` lets a run that was not made here import code of its own (an env or network class by its dotted path).
    """
    from reverie.agent import Agent
    from reverie.envs.config import EnvConfig
    from reverie.envs.episode import make_action_map
    from reverie.envs.make import make_env
    from reverie.runs.policies import load_policy

    path = _locate(name, runs_dir)
    with trusting(trust, path):
        policy, about = load_policy(path, which)
        env = make_env(EnvConfig.model_validate(about["env"]))
    env.close()
    return Agent(policy, about, env.observation_space, make_action_map(policy.specs.action, env.action_space))


def evaluate(
    name: RunLike = "@last",
    episodes: int = 100,
    which: str = "best",
    seed: int | None = None,
    sample: bool | None = None,
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> dict[str, Any]:
    """Play episodes with a run's policy and sum up the scores (``return_mean``, ``return_std``, ``returns`` ...).

    ``which`` is best, final or the env steps of a checkpoint. ``seed`` chooses other starting states than the run's own
    evaluations had. ``sample`` draws actions instead of taking the best; without it that is as in the run's
    evaluations. Without ``quiet`` a terminal shows how far it is.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.evaluate import evaluate_policy
    from reverie.runs.policies import load_any_policy, policy_folder

    path = _locate(name, runs_dir)
    with trusting(trust, path), quiet_progress(quiet):
        policy, about = load_any_policy(path, which)
        is_kept = which in ("best", "final")  # whichever there is, if only one
        found = policy_folder(path, which).name.partition("-")[0] if is_kept else str(about["env_steps"])
        return {"run": path.name, "policy": found, **evaluate_policy(policy, about, episodes, seed, sample)}


def record(
    name: RunLike = "@last",
    episodes: int = 1,
    which: str = "best",
    out: str | Path | None = None,
    gif: bool = False,
    seed: int | None = None,
    sample: bool | None = None,
    fps: float | None = None,
    max_frames: int | None = None,
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> Recording:
    """Film episodes of a run's policy; the file's ``path`` and the ``returns`` are in what is returned.

    ``which`` is best, final or the env steps of a checkpoint. ``out`` ends with .mp4 (which needs the extra video) or
    .gif; without it the file goes to the run's folder of videos. ``seed`` chooses other episodes than evaluations had,
    ``sample`` whether actions are drawn; without it that is as in the evaluations.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.record import Cast, choose_path, record_file
    from reverie.store.run_folder import refuse_links

    run = _locate(name, runs_dir)
    path = choose_path(run / "videos", f"record-{which}", Path(out) if out else None, gif)
    if out is None and not trust:
        refuse_links(run)
    with trusting(trust, run), quiet_progress(quiet):
        cast = Cast.of_run(run, which, seed, sample)
        return record_file(cast, path, episodes, fps, max_frames)


def foresee(
    name: RunLike = "@last",
    which: str = "final",
    steps: int | None = None,
    dreams: int | None = None,
    envs: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> dict[str, Any]:
    """Let a run's world model foresee fresh episodes; writes videos and pictures, and returns the errors.

    Every dream goes ``steps`` steps ahead with the actions that are really done; there are ``dreams`` of them in each
    of ``envs`` envs. What is not given is as in the run's evaluations.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.foresee import Wanted, foresee_run
    from reverie.store.run_folder import refuse_links

    run = _locate(name, runs_dir)
    if out is None and not trust:
        refuse_links(run)
    with trusting(trust, run), quiet_progress(quiet):
        return foresee_run(run, Wanted(which, seed, steps, dreams, envs, Path(out) if out else None))


def report(*names: RunLike, runs_dir: str | Path = "runs", out: str | Path | None = None, quiet: bool = True) -> Path:
    """Write a report of one run (into its folder) or a comparison of several; the path of the page.

    ``names`` are runs, patterns such as ``CartPole*``, or what :func:`train` returned; none means the last run.
    ``out`` is another place.
    """
    from reverie.log.progress import quiet_progress
    from reverie.report.run_selection import choose_runs, default_out
    from reverie.report.write import report_run, report_runs

    paths = choose_runs([_name(name) for name in names] or ["@last"], Path(runs_dir))
    target = None if out is None else Path(out)
    if target is not None and target.suffix != ".html":
        raise ConfigError(f"The page '{target}' should end in .html; the text beside it will end in .md.")
    with quiet_progress(quiet):
        if len(paths) == 1:
            return report_run(paths[0], target)
        return report_runs(paths, target or default_out(paths, Path(runs_dir)))


def export_data(
    target: RunLike,
    out: str | Path,
    form: Literal["chunks", "minari"] = "chunks",
    buffer: str = "main",
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> Path:
    """Write the replay of a run, or a dataset of ours, as a dataset; where it lies."""
    from reverie.data.dataset import DESCRIPTION, read_dataset
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import export_dataset, export_run

    is_dataset = (Path(_name(target)) / DESCRIPTION).exists()
    run = None if is_dataset else _locate(target, runs_dir)
    with trusting(trust, run), quiet_progress(quiet):
        if run is None:
            return export_dataset(read_dataset(Path(_name(target))), Path(out), form)
        return export_run(run, Path(out), form, buffer)


def record_data(
    target: RunLike,
    out: str | Path,
    episodes: int = 100,
    random: bool = False,
    which: str = "best",
    sample: bool = True,
    seed: int = 0,
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> Path:
    """Write fresh episodes of a run's policy as a dataset, or of an env if ``random``; where it lies."""
    from reverie.config.catalogue import find_env_config
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import EpisodeRecorder

    with quiet_progress(quiet):
        if random:
            return EpisodeRecorder.of_random_play(find_env_config(_name(target))).record(episodes, seed, Path(out))
        run = _locate(target, runs_dir)
        with trusting(trust, run):
            return EpisodeRecorder.of_run(run, which, sample).record(episodes, seed, Path(out))


def describe_data(source: str, quiet: bool = True) -> dict[str, Any]:
    """What is in a dataset: episodes, rows, returns, columns."""
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import describe

    with quiet_progress(quiet):
        return describe(source)


def find(name: RunLike = "@last", runs_dir: str | Path = "runs") -> Run:
    """A run by its name, a unique beginning of it, its path, ``@last``, ``@best`` or ``@best:<env>``."""
    from reverie.store.run_folder import RunFolder

    path = _locate(name, runs_dir)
    return Run(path, RunFolder(path).status()["state"])


def _locate(run: RunLike, runs_dir: str | Path) -> Path:
    from reverie.store.run_folder import find_run

    return find_run(_name(run), Path(runs_dir))


def _name(run: Any) -> str:
    if isinstance(run, str | os.PathLike):
        return os.fspath(run)
    raise ConfigError(
        f"A run is given by its name, its path or as what train() returned, not as {type(run).__name__}.",
        "Write '@last' for the newest one, for example.",
    )


def trusting(trust: bool, run: Path | None = None, typed: Sequence[str] = ()) -> AbstractContextManager[None]:
    """A block in which a run may import what it names if it is trusted or was made here, or what the user ``typed``."""
    if trust:
        return nullcontext()
    from reverie.runs.trust import own_names

    own = own_names(run) if run is not None else None
    names = frozenset(word.partition("=")[2] for word in typed)
    return registry.known_kinds_only(registry.Trust(names | (own or frozenset()), may_send=own is not None))
