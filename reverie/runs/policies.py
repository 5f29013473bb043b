"""The policies that a run keeps: the best by evaluation, and the last.

A saved policy is complete: its ``about`` holds the env, the seed, the evaluation settings and the counters. ``eval``,
``record``, ``play``, ``foresee``, ``data record`` and ``load`` read them there and nowhere else, so they agree, and a
later edit of config.yaml changes none of them.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reverie.config.migrate import migrate
from reverie.config.pipeline import check_policy
from reverie.config.schema import BackendConfig, EvaluateConfig, RunConfig
from reverie.config.validate import ProblemsError
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError, ReverieError, RunError
from reverie.core.specs import Specs
from reverie.core.types import State
from reverie.policy import Policy, read_bundle
from reverie.store.files import delete_any
from reverie.store.run_folder import RunFolder
from reverie.store.trash import is_cleaned, restore_hint
from reverie.store.trees import read_tree
from reverie.training.session import Session

if TYPE_CHECKING:
    from reverie.backend import Backend

POLICY_NAME = re.compile(r"best-(\d+)(?:-(\d+))?|final")
Position = tuple[int, int]
"""Env steps and updates at which a policy was saved."""


class PolicyShelf:
    """Saves the policy whenever an evaluation is at least as good as the best so far, and at the end.

    Of equal scores the latest wins, because its policy has trained longest.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.best_score: float | None = None
        self.best_name: str | None = None
        self._of_end: tuple[float, str] | None = None
        """The best policy by the final evaluation of a run that was later extended. Not saved as state: the same run
        without that end would not have it."""

    def end_cycle(self, session: Session) -> None:
        """Nothing to do: only evaluations matter here."""

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        score = summary["return_mean"]
        if not math.isfinite(score) or (self.best_score is not None and score < self.best_score):
            return
        name = self._new_name(session)
        self.save(session, name, summary)
        self.best_score, self.best_name = score, name  # only after it is saved
        self._write_status()

    def _new_name(self, session: Session) -> str:
        """A new name, even if env steps have not advanced: an older checkpoint may still need the last best policy."""
        name = f"best-{session.counters.env_steps}"
        is_taken = self.best_name is not None and _position_in(self.best_name)[0] == session.counters.env_steps
        return f"{name}-{session.counters.updates}" if is_taken else name

    def save(self, session: Session, name: str, summary: dict[str, float] | None = None) -> None:
        """Save the current policy."""
        about = {
            **_settings(session.config), **session.counters.state(), "score": summary,
        }  # fmt: skip
        session.policy.save(self._path(name), about)

    def state(self) -> State:
        return {"best_score": self.best_score, "best_name": self.best_name}

    def load_state(self, state: State, position: Position | None = None) -> None:
        """``position`` is where the run continues. A better policy in the run's status from before it is kept."""
        self.best_score, self.best_name = state["best_score"], state["best_name"]
        if self.best_score is not None and not math.isfinite(self.best_score):
            self.best_score, self.best_name = None, None  # from an older version, which kept such scores
        self._of_end = None if position is None else self._find_best(position)
        self._write_status()

    def _find_best(self, position: Position) -> tuple[float, str] | None:
        """The best policy in the run's status, unless it is from after ``position``."""
        with suppress(RunError):  # ignore a damaged status
            status = self.folder.status()
            name, score = str(status.get("best_policy")), status.get("best_score")
            saved_at = self._saved_at(name) if name != "final" and POLICY_NAME.fullmatch(name) else None
            is_earlier = saved_at is not None and saved_at <= position
            if is_earlier and isinstance(score, int | float) and math.isfinite(score):
                return float(score), name
        return None

    def drop_final_after(self, position: Position) -> None:
        """Delete the final policy if the run continues from an earlier position."""
        saved_at = self._saved_at("final")
        if saved_at is not None and saved_at > position:
            delete_any(self._path("final"))

    def _saved_at(self, name: str) -> Position | None:
        """Env steps and updates of a policy on disk. None if it is missing or unreadable."""
        with suppress(RunError, KeyError, TypeError, ValueError):
            about = read_tree(self._path(name) / "policy")["about"]
            return int(about["env_steps"]), int(about.get("updates", 0))
        return None

    @property
    def best(self) -> tuple[float | None, str | None]:
        """The score and the name of the run's best policy. Of equal ones the latest."""
        if self._of_end is None or self.best_score is None or self.best_name is None:
            return self._of_end or (self.best_score, self.best_name)
        candidates = (self._of_end, (self.best_score, self.best_name))
        return max(candidates, key=lambda found: (found[0], _position_in(found[1])))

    def _write_status(self) -> None:
        score, name = self.best
        self.folder.write_status(best_score=score, best_policy=name)

    def _path(self, name: str) -> Path:
        return self.folder.path / "policies" / name

    def tidy(self, keep: set[str]) -> None:
        """Delete leftovers of crashes, and former best policies that no kept checkpoint refers to."""
        wanted = {*keep, self.best_name, self.best[1]}
        for path in (self.folder.path / "policies").glob("*"):
            is_leftover = path.name.startswith(".")
            if is_leftover or (path.name.startswith("best-") and path.name not in wanted):
                delete_any(path)


def policy_folder(run: Path, which: str = "best") -> Path:
    """The folder of a run's ``best`` or ``final`` policy. If the run has only one of them, that one."""
    best = _best_name(run)
    names = {"best": best, "final": "final"}
    if which not in names:
        raise RunError(f"A run keeps a 'best' and a 'final' policy, not '{which}'.")
    for name in (names[which], best, "final"):
        # The name comes from a file that anyone may have written, so it must not lead out of the run.
        if isinstance(name, str) and POLICY_NAME.fullmatch(name) and (run / "policies" / name / "policy.json").exists():
            return run / "policies" / name
    raise RunError(f"The run '{run.name}' has no policy yet.", _without_policy(run))


def _without_policy(run: Path) -> str:
    """How to get a policy from a run that has not been evaluated yet."""
    from reverie.store.checkpoint import CheckpointFolder

    if is_cleaned(run):
        return restore_hint(run)
    command = f"Let it train until its first evaluation: reverie resume {RunFolder(run).words}"
    saved = CheckpointFolder(run).all()
    if not saved:
        return command
    steps = saved[-1].counters["env_steps"]
    return f"{command}. Or let eval, play, record or foresee use a checkpoint: --policy {steps}."


def _best_name(run: Path) -> Any:
    """From the run's status. If that file is damaged, the newest, which is at least as good as the ones before."""
    try:
        return RunFolder(run).status().get("best_policy")
    except RunError:
        names = [path.name for path in (run / "policies").glob("best-*") if POLICY_NAME.fullmatch(path.name)]
        return max(names, key=_position_in, default=None)


def _position_in(name: str) -> Position:
    """The env steps (and updates, if any) in the name of a best policy."""
    match = POLICY_NAME.fullmatch(name)
    return (0, 0) if match is None else (int(match[1] or 0), int(match[2] or 0))


def load_policy(run: Path, which: str = "best", backend: Backend | None = None) -> tuple[Policy, dict[str, Any]]:
    """A run's policy and its ``about``. Explains what is unreadable or inconsistent.

    Without a ``backend`` the policy uses the settings of its run (:func:`use_backend`).
    """
    folder = policy_folder(run, which)
    others = [name for name in ("best", "final") if policy_folder(run, name) != folder]
    fix = " ".join(["It is damaged or was changed.", *(f"Try the other one: --policy {name}" for name in others)])
    try:
        bundle = _with_current_settings(read_bundle(folder))
        about = bundle["about"]
        missing = {} if all(key in about for key in ("evaluate", "horizon_steps", "backend")) else _settings_of_run(run)
        about = {**missing, **about, **_counts(about), "seed": int(about["seed"])}
        if backend is None:  # else a run that goes on asks, which has checked its own settings
            check_policy(about, Specs.from_json(bundle["specs"]))
        backend = backend or use_backend(BackendConfig.model_validate(about["backend"]))
        return Policy.from_bundle(bundle, backend), about
    except RunError as error:
        raise RunError(error.message, error.fix or fix) from error
    except ProblemsError as error:
        raise RunError(f"The policy in {folder} cannot be used: {error}", fix) from error
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise RunError(f"The policy in {folder} cannot be used: {problem}", fix) from error


def load_any_policy(run: Path, which: str = "best") -> tuple[Policy, dict[str, Any]]:
    """The ``best`` or ``final`` policy, or that of a checkpoint, given by its env steps or folder name."""
    if which in ("best", "final"):
        return load_policy(run, which)
    if not which[:1].isdigit():
        raise RunError(f"There is no policy '{which}'.", "Use best, final or the env steps of a checkpoint.")
    from reverie.build import build_policy
    from reverie.config.pipeline import read_saved
    from reverie.store.checkpoint import CheckpointFolder

    checkpoint = CheckpointFolder(run).find(which)
    checkpoint.check()
    prepared = read_saved(run / "config.yaml")
    config = prepared.config
    try:
        states = checkpoint.read("algorithm"), checkpoint.read("normaliser")
        policy = build_policy(config, prepared.specs, *states, use_backend(config.backend))
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        fix = "config.yaml or the checkpoint was changed. Use --policy best or --policy final."
        raise RunError(f"{checkpoint.path} does not fit the run's config.yaml: {error}", fix) from error
    return policy, {**_settings(config), "score": None, **_counts(checkpoint.counters)}


def use_backend(settings: BackendConfig) -> Backend:
    """The backend of a run, for its policy. Also sets the threads of the process.

    A machine that lacks the run's device or matmul library computes on the CPU in float32, with a note on stderr.
    """
    from reverie.backend import Backend, configure_process

    configure_process(settings)
    try:
        return Backend.from_settings(settings)
    except ConfigError as error:
        print(f"Note: {error.message} The policy computes on the CPU in float32.", file=sys.stderr)
        return Backend(engine=settings.engine)


def _with_current_settings(bundle: State) -> State:
    """A bundle of an earlier version with today's names of settings. Migrations leave those alone, so a bundle without
    a version counts as version 0."""
    sections = {name: bundle["about"][name] for name in ("env", "evaluate", "backend") if name in bundle["about"]}
    version = bundle["about"].get("schema_version", 0)
    tree, _ = migrate({"schema_version": version, "algorithm": bundle["algorithm_config"], **sections})
    settings = tree.pop("algorithm")
    return {**bundle, "algorithm_config": settings, "about": {**bundle["about"], **tree}}


def _settings(config: RunConfig) -> dict[str, Any]:
    """What a policy needs to play like its run's evaluations."""
    return {
        "schema_version": config.schema_version,
        "env": config.env.for_evaluation().model_dump(mode="json"), "seed": config.seed,
        "evaluate": config.evaluate.model_dump(mode="json"), "horizon_steps": config.horizon_steps,
        "backend": config.backend.model_dump(mode="json"),
    }  # fmt: skip


def _settings_of_run(run: Path) -> dict[str, Any]:
    """Settings for a policy of an older version, which does not contain all of them: those of the run's config.yaml.

    If that cannot be read, evaluations have their default settings.
    """
    from reverie.config.files import read_config

    try:
        config = read_config(run / "config.yaml")
    except ReverieError:
        cpu = BackendConfig(
            device="cpu", engine="numpy", precision="float32", matmul="torch", numpy_matmul="numpy",
            flush_denormals=False,
        )  # fmt: skip
        return {"evaluate": EvaluateConfig().model_dump(mode="json"), "backend": cpu.model_dump(mode="json")}
    return _settings(config)


def _counts(saved: Mapping[str, Any]) -> dict[str, int]:
    """The counters that were saved, as numbers; ``env_steps`` must be one of them."""
    names = {"env_steps", *saved}
    return {name: int(saved[name]) for name in Counters.saved_in(saved).state() if name in names}
