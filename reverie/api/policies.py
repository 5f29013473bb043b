"""Play, record and inspect the policies of runs from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reverie.api.run import RunLike, Which, locate, trusting

if TYPE_CHECKING:
    from reverie.agent import Agent
    from reverie.runs.record import Recording


def load(name: RunLike = "@last", which: Which = "best", runs_dir: str | Path = "runs", trust: bool = False) -> Agent:
    """The trained policy of a run: ``load("@last").act(observation)``.

    ``trust`` lets a run from another machine import the env or network classes that it names by dotted path.
    """
    from reverie.agent import Agent

    path = locate(name, runs_dir)
    with trusting(trust, path):
        return Agent.load(path, which)


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
    """Play episodes with a run's policy and summarise the scores (``return_mean``, ``return_std``, ``returns`` ...).

    ``which`` is best, final or the env steps of a checkpoint. ``seed`` chooses the episodes; the default plays those of
    the run's evaluations. ``sample`` draws actions instead of taking the best; the default is the run's setting. With
    ``quiet=False`` a terminal shows progress.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.evaluate import evaluate_policy
    from reverie.runs.policies import load_any_policy, policy_folder

    path = locate(name, runs_dir)
    with trusting(trust, path), quiet_progress(quiet):
        policy, about = load_any_policy(path, which)
        is_kept = which in ("best", "final")  # a run may have only one of them
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
    """Record a video of a run's policy. The result has the ``path`` of the file and the ``returns``.

    ``which`` is best, final or the env steps of a checkpoint. ``out`` ends with .mp4 (needs the extra video) or .gif;
    the default is a file in the run's folder ``videos``. ``seed`` and ``sample`` are those of :func:`evaluate`.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.record import Cast, choose_path, record_file
    from reverie.store.run_folder import refuse_links

    run = locate(name, runs_dir)
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
    """Measure the open-loop predictions of a run's world model on fresh episodes. Writes videos and figures.

    Each of ``dreams`` predictions per env goes ``steps`` steps ahead with the actions that are really taken, in
    ``envs`` envs. Defaults are the settings of the run's evaluations. Returns the errors.
    """
    from reverie.log.progress import quiet_progress
    from reverie.runs.foresee import Wanted, foresee_run
    from reverie.store.run_folder import refuse_links

    run = locate(name, runs_dir)
    if out is None and not trust:
        refuse_links(run)
    with trusting(trust, run), quiet_progress(quiet):
        return foresee_run(run, Wanted(which, seed, steps, dreams, envs, Path(out) if out else None))
