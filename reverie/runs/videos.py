"""The videos of a run: ``videos/best.mp4`` and ``videos/last.mp4``, each with a JSON file that describes it.

The files themselves show what is recorded, so there is no state to save. If recording fails, the run reports it once
and continues. Sinks that show videos receive a small preview.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reverie.config.schema import RunConfig
from reverie.core.counters import Counters
from reverie.core.errors import ReverieError, RunError
from reverie.core.types import Clock
from reverie.core.wording import count
from reverie.log.media import FrameSink, Preview
from reverie.log.sinks import read_jsonl
from reverie.log.video import open_video
from reverie.log.video_frames import as_return
from reverie.policy import Policy
from reverie.runs.logged_media import has_viewers
from reverie.runs.policies import PolicyShelf, load_policy
from reverie.runs.watch import Scene, policy_player, show_episodes
from reverie.store.run_folder import RunFolder, read_json, write_json
from reverie.training.evaluator import EvaluationStopped, StopCheck, never
from reverie.training.session import Session

KEPT = {"best": "best", "last": "final"}
"""File names, and which policy each video shows."""


class Videos:
    """Records the last and the best policy, every ``video.every_evaluations`` evaluations and at the end of the run."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        shelf: PolicyShelf,
        say: Callable[[str], None],
        should_stop: StopCheck = never,
        quiet: bool = False,
    ) -> None:
        self.config = config
        self.run = folder
        self.shelf = shelf
        self.say = say
        self.should_stop = should_stop
        self.quiet = quiet
        self.is_on = config.video.enabled is True  # auto was decided when the run was created
        self.evaluations = 0
        self._best = shelf.best
        self._best_clock: Clock | None = None
        self._has_viewers = has_viewers(config)
        self._preview: Preview | None = None

    def begin(self, session: Session) -> None:
        """Count the run's evaluations so far, and delete videos from after the checkpoint of a resume."""
        if not self.is_on:
            return
        with suppress(OSError, ValueError):
            lines = read_jsonl(self.run.path / "metrics.jsonl")
            self.evaluations = sum("evaluate/return_mean" in line for line in lines)
        for name in KEPT:
            if self._about(name).get("env_steps", 0) > session.counters.env_steps:
                self._delete(name)

    def end_cycle(self, session: Session) -> None:
        """Nothing to do: only evaluations matter here."""

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        self.evaluations += 1
        if self._best != self.shelf.best:
            self._best = self.shelf.best
            self._best_clock = session.counters.clock()
        every = self.config.video.every_evaluations
        if every and self.evaluations % every == 0:
            self._record_all(session)

    def finish(self, session: Session) -> None:
        """Record the videos that are still missing at the end of the run."""
        self._record_all(session)

    def announce(self) -> None:
        """Print whose episodes the videos show, their returns, and the folder."""
        returns = [
            f"of the {policy} policy (return {as_return(about['return'])})"
            for name, policy in KEPT.items() if "return" in (about := self._about(name))
        ]  # fmt: skip
        if self.is_on and returns:
            self.say(f"Videos: one episode {', one '.join(returns)}: {self.run.path / 'videos'}")

    def _record_all(self, session: Session) -> None:
        if not self.is_on:
            return
        try:
            if self._record_last(session):
                self._show("last", session)
            if self._record_best(session):
                self._show("best", session)
        except EvaluationStopped:
            pass  # the run was asked to stop and does not wait for a video
        except Exception as error:  # training must not fail because of a renderer, a driver or a disk
            self.is_on = False
            with suppress(OSError):
                self._report(error)

    def _record_last(self, session: Session) -> bool:
        """Returns whether there is a new video."""
        clock = session.counters.clock()
        about = {"policy": "final", "env_steps": clock.env_steps, "updates": clock.updates}
        if self._has("last", about):
            return False
        # Sampling actions may change the state of an algorithm (visit counts), so it happens on a copy.
        policy = session.policy.copy() if self.config.evaluate.sample else session.policy
        self._record("last", policy, clock, about)
        return True

    def _record_best(self, session: Session) -> bool:
        """Returns whether there is a new video."""
        score, name = self._best
        about = {"policy": name, "score": score}
        if name is None or self._has("best", about):
            return False
        if self._best_clock == session.counters.clock():  # the last policy is the best, and already recorded
            copy = self._path(".best")
            shutil.copyfile(self._path("last"), copy)
            self._install("best", copy, {**self._about("last"), **about})
            return True
        policy, saved = load_policy(self.run.path, backend=session.policy.backend)
        self._record("best", policy, Counters.saved_in(saved).clock(), about)
        return True

    def _show(self, name: str, session: Session) -> None:
        """Send the newest video to the sinks."""
        if self._preview is not None:
            session.recorder.show("video", f"videos/{name}", **self._preview.content())

    @contextmanager
    def _open(self, path: Path, fps: float) -> Iterator[FrameSink]:
        with open_video(path, fps, quick=True) as sink:
            self._preview = Preview(sink, fps) if self._has_viewers else None
            yield self._preview or sink

    def _record(self, name: str, policy: Policy, clock: Clock, about: dict[str, Any]) -> None:
        config, path = self.config, self._path(f".{name}")
        scene = Scene(
            env=config.env.for_evaluation(), seed=config.seed,
            title=f"{config.env.id} after {count(clock.env_steps, 'step')}",
            max_frames=config.video.max_frames, fps=config.video.fps, should_stop=self.should_stop,
        )  # fmt: skip
        player = policy_player(policy, config.seed, clock, config.evaluate.sample)
        (take,) = show_episodes(player, scene, lambda fps: self._open(path, fps), self.quiet)
        source = {"env": config.env.id, "env_steps": clock.env_steps, "seed": config.seed}
        self._install(name, path, {**source, **take.to_json(), **about})

    def _install(self, name: str, finished: Path, about: dict[str, Any]) -> None:
        """Put a video and its description in place. The old description is deleted first: it must not describe the new
        video."""
        path = self._path(name)
        path.with_suffix(".json").unlink(missing_ok=True)
        os.replace(finished, path)
        write_json(path.with_suffix(".json"), about)

    def _has(self, name: str, about: dict[str, Any]) -> bool:
        """Whether the video of this name shows what ``about`` describes."""
        known = self._about(name)
        return self._path(name).exists() and all(known.get(key) == value for key, value in about.items())

    def _about(self, name: str) -> dict[str, Any]:
        """The description of a video. Empty if there is none."""
        try:
            return read_json(self._path(name).with_suffix(".json"))
        except RunError:
            return {}

    def _delete(self, name: str) -> None:
        """Delete a video, its description first: without it the video counts as missing."""
        for ending in (".json", ".mp4"):
            self._path(name).with_suffix(ending).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.run.path / "videos" / f"{name}.mp4"

    def _report(self, error: Exception) -> None:
        text = error.message if isinstance(error, ReverieError) else f"{type(error).__name__}: {error}"
        self.say(f"No videos from now on. Training continues. {text}")
        self.say(getattr(error, "fix", "") or "video.enabled=false turns videos off.")
