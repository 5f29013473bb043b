"""The videos of a run: ``videos/best.mp4`` and ``videos/last.mp4``, each with a JSON file that says what it shows.

A part of the cycle without memory: what was filmed is told by the files. Whatever goes wrong here is said once and
never stops the training. Sinks that show videos are given each in few small frames.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reverie.config.resolve import can_film
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

KEPT = ("best", "last")


class Videos:
    """Films the last and the best policy every so many evaluations, and when the run has come to its end."""

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
        enabled = config.video.enabled
        self.is_on = can_film(config.env) if enabled == "auto" else enabled
        self.evaluations = 0
        self._best = shelf.best
        self._best_clock: Clock | None = None
        self._has_viewers = has_viewers(config)
        self._preview: Preview | None = None

    def begin(self, session: Session) -> None:
        """Find out where the run stands, and forget what a resume from an earlier moment will make anew."""
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
            self._film_all(session)

    def finish(self, session: Session) -> None:
        """The run is over: film whatever is not filmed yet."""
        self._film_all(session)

    def announce(self) -> None:
        """Say what there is to see, and where."""
        scores = [f"{name} {as_return(about['return'])}" for name in KEPT if "return" in (about := self._about(name))]
        if self.is_on and scores:
            self.say(f"Videos ({', '.join(scores)}): {self.run.path / 'videos'}")

    def _film_all(self, session: Session) -> None:
        if not self.is_on:
            return
        try:
            if self._film_last(session):
                self._show("last", session)
            if self._film_best(session):
                self._show("best", session)
        except EvaluationStopped:
            pass  # the run is asked to stop, and a video is not worth waiting for
        except Exception as error:  # whatever an env, a driver or a disk may do: training goes on
            self.is_on = False
            with suppress(OSError):
                self._complain(error)

    def _film_last(self, session: Session) -> bool:
        """Whether there is a new film."""
        clock = session.counters.clock()
        about = {"policy": "final", "env_steps": clock.env_steps, "updates": clock.updates}
        if self._has("last", about):
            return False
        # Drawing actions may change the state of an algorithm (counts of visits), which must stay the run's own.
        policy = session.policy.copy() if self.config.evaluate.sample else session.policy
        self._film("last", policy, clock, about)
        return True

    def _film_best(self, session: Session) -> bool:
        score, name = self._best
        about = {"policy": name, "score": score}
        if name is None or self._has("best", about):
            return False
        if self._best_clock == session.counters.clock():  # the last policy is the best, and filmed already
            copy = self._path(".best")
            shutil.copyfile(self._path("last"), copy)
            self._install("best", copy, {**self._about("last"), **about})
            return True
        policy, told = load_policy(self.run.path, backend=session.policy.backend)
        self._film("best", policy, Counters.saved_in(told).clock(), about)
        return True

    def _show(self, name: str, session: Session) -> None:
        """The newest film to the sinks."""
        if self._preview is not None:
            session.recorder.show("video", f"videos/{name}", **self._preview.content())

    @contextmanager
    def _open(self, path: Path, fps: float) -> Iterator[FrameSink]:
        with open_video(path, fps, quick=True) as sink:
            self._preview = Preview(sink, fps) if self._has_viewers else None
            yield self._preview or sink

    def _film(self, name: str, policy: Policy, clock: Clock, about: dict[str, Any]) -> None:
        config, path = self.config, self._path(f".{name}")
        scene = Scene(
            env=config.env, seed=config.seed, title=f"{config.env.id} after {count(clock.env_steps, 'step')}",
            max_frames=config.video.max_frames, fps=config.video.fps, should_stop=self.should_stop,
        )  # fmt: skip
        player = policy_player(policy, config.seed, clock, config.evaluate.sample)
        (take,) = show_episodes(player, scene, lambda fps: self._open(path, fps), self.quiet)
        place = {"env": config.env.id, "env_steps": clock.env_steps, "seed": config.seed}
        self._install(name, path, {**place, **take.to_json(), **about})

    def _install(self, name: str, finished: Path, about: dict[str, Any]) -> None:
        """Put a video and its description in place; in between there is none, so that it never tells of another."""
        path = self._path(name)
        path.with_suffix(".json").unlink(missing_ok=True)
        os.replace(finished, path)
        write_json(path.with_suffix(".json"), about)

    def _has(self, name: str, about: dict[str, Any]) -> bool:
        told = self._about(name)
        return self._path(name).exists() and all(told.get(key) == value for key, value in about.items())

    def _about(self, name: str) -> dict[str, Any]:
        """What is written beside a video; nothing if there is none."""
        try:
            return read_json(self._path(name).with_suffix(".json"))
        except RunError:
            return {}

    def _delete(self, name: str) -> None:
        """The description goes first: without it a video counts as not filmed."""
        for ending in (".json", ".mp4"):
            self._path(name).with_suffix(ending).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.run.path / "videos" / f"{name}.mp4"

    def _complain(self, error: Exception) -> None:
        text = error.message if isinstance(error, ReverieError) else f"{type(error).__name__}: {error}"
        self.say(f"No videos from here on; training is not affected. {text}")
        self.say(getattr(error, "fix", "") or "video.enabled=false leaves videos out.")
