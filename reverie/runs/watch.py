"""Plays episodes on an env that renders, and passes frames with captions to a video file or a window.

The episodes are those of evaluations: number i starts from the seed (seed, "evaluate", i), and a policy draws from
(seed, "evaluate", env steps, updates). So recording needs no state and does not change that of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from reverie.core.errors import ForeignCodeError, ReverieError
from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock, Mode, is_last
from reverie.envs.config import EnvConfig
from reverie.envs.render import explain_rendering
from reverie.envs.vector import SyncVector
from reverie.log.media import FrameSink
from reverie.log.progress import Task, progress
from reverie.log.video import ViewerLeft
from reverie.log.video_frames import Canvas, Caption, VideoError, as_return
from reverie.policy import Policy
from reverie.training.evaluator import EvaluationStopped, StopCheck, never
from reverie.training.interaction import Interaction, Player, PolicyPlayer, RandomPlayer

STREAM = "evaluate"
MOST_FPS = 30.0
"""Faster envs skip frames: the difference is hard to see, and rendering is most of the cost."""
HELD_SECONDS = 1.0
"""How long the last frame of an episode is shown."""


def policy_player(policy: Policy, seed: int, clock: Clock, sample: bool = False) -> PolicyPlayer:
    """A policy that plays the episodes of evaluations, with the draws of the evaluation at this clock."""
    rng = make_generator(seed, STREAM, clock.env_steps, clock.updates)
    return PolicyPlayer.at(policy, Mode.COLLECT if sample else Mode.EVALUATE, clock, rng)


def random_player(specs: Specs, seed: int) -> RandomPlayer:
    return RandomPlayer(specs, make_generator(seed, "random play"))


@dataclass(frozen=True)
class Scene:
    """What is played and shown."""

    env: EnvConfig
    seed: int
    title: str = ""
    episodes: int | None = 1
    """None: until the viewer closes the window."""
    max_frames: int = 1000
    fps: float | None = None
    should_stop: StopCheck = field(default=never)


@dataclass(frozen=True)
class Take:
    """One episode that was played and shown."""

    episode: int
    episode_seed: int
    total: float
    length: int
    frames: int
    is_cut: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "return": self.total, "length": self.length, "episode": self.episode, "episode_seed": self.episode_seed,
            "frames": self.frames, "is_cut": self.is_cut,
        }  # fmt: skip


OpenSink = Callable[[float], AbstractContextManager[FrameSink]]


def show_episodes(player: Player, scene: Scene, open_sink: OpenSink, quiet: bool = False) -> list[Take]:
    """Play the scene and pass its frames to a sink, which ``open_sink(fps)`` opens. Raises VideoError."""
    try:
        vector = SyncVector(scene.env, scene.seed, STREAM, 1, render_mode="rgb_array")
    except ForeignCodeError:  # the run is not trusted; rendering is not the problem
        raise
    except (ReverieError, ImportError) as error:
        reason = getattr(error, "message", str(error))
        raise VideoError(f"{scene.env.id} cannot be rendered: {reason}", explain_rendering(error)) from error
    try:
        stage = _Stage(player, scene, vector)
        with open_sink(stage.fps) as sink, _progress(stage, quiet) as task:
            return stage.play(sink, task)
    finally:
        vector.close()


def _progress(stage: _Stage, quiet: bool) -> AbstractContextManager[Task]:
    return progress(f"recording {stage.scene.env.id}", stage.expected_steps, quiet)


class _Stage:
    """An interaction, and how its frames are shown."""

    def __init__(self, player: Player, scene: Scene, vector: SyncVector) -> None:
        self.scene, self.vector = scene, vector
        self.interaction = Interaction(vector, player)
        speed = scene.fps or vector.render_fps
        self.every = 1 if scene.fps else max(1, math.ceil(speed / MOST_FPS))
        self.fps = speed / self.every
        self.limit = vector.specs.max_episode_steps or 0
        self.expected_steps = self.limit * (scene.episodes or 0) or None
        self.canvas = Canvas(scene.title)
        self.frames = 0

    def play(self, sink: FrameSink, task: Task) -> list[Take]:
        """All episodes, or those until the viewer closes the window."""
        takes: list[Take] = []
        try:
            while self.scene.episodes is None or len(takes) < self.scene.episodes:
                takes.append(self._play_one(len(takes), sink, task))
        except ViewerLeft:
            pass
        return takes

    def _play_one(self, number: int, sink: FrameSink, task: Task) -> Take:
        total, length, shown = 0.0, 0, self.frames
        row = self.interaction.restart()
        self._show(sink, number, total, length)
        while not is_last(row)[0]:
            if self.scene.should_stop():
                raise EvaluationStopped
            row = self.interaction.step(self.interaction.act()["action"])
            total, length = total + float(row["reward"][0]), length + 1
            if length % self.every == 0 or is_last(row)[0]:
                self._show(sink, number, total, length)
            task.advance()
        is_cut = self.frames >= self.scene.max_frames
        for _ in range(0 if is_cut else round(HELD_SECONDS * self.fps)):
            sink.add(self._last)
        seed = derive_seed(self.scene.seed, STREAM, number)
        return Take(number, seed, total, length, self.frames - shown, is_cut)

    def _show(self, sink: FrameSink, number: int, total: float, length: int) -> None:
        """Render a frame, unless the video has its ``max_frames``."""
        if self.frames >= self.scene.max_frames:
            return
        several = f"{number + 1}:  " if self.scene.episodes != 1 else ""
        progress_made = length / self.limit if self.limit else 0.0
        caption = Caption(f"return {as_return(total)}", f"{several}step {length:,}", progress_made)
        self._last = self.canvas.draw(self._picture(), caption)
        self.frames += 1
        sink.add(self._last)

    def _picture(self) -> Any:
        try:
            return self.vector.render()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise VideoError(f"{self.scene.env.id} failed to render: {reason}", explain_rendering(error)) from error
