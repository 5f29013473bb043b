"""Plays episodes on an env of their own that draws, and hands frames with captions to a file or a window.

The episodes are those of evaluations: number i starts from the seed (seed, "evaluate", i), and a policy draws from
(seed, "evaluate", env steps, updates). So filming has no memory and leaves that of a run alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from reverie.core.errors import ForeignCodeError, ReverieError
from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import Specs
from reverie.core.types import Array, Clock, Mode, Row, is_last
from reverie.envs.config import EnvConfig
from reverie.envs.render import explain_rendering
from reverie.envs.vector import SyncVector
from reverie.log.media import FrameSink
from reverie.log.progress import Task, progress
from reverie.log.video import ViewerLeft
from reverie.log.video_frames import Canvas, Caption, VideoError, as_return
from reverie.policy import Policy
from reverie.training.evaluator import EvaluationStopped, StopCheck, never

STREAM = "evaluate"
MOST_FPS = 30.0
"""Faster envs have steps left out: the eye does not miss them, and drawing is most of the cost."""
HELD_SECONDS = 1.0
"""How long the last frame of an episode stays."""


class Actor(Protocol):
    """Whoever plays: a policy, or chance."""

    def begin(self) -> None: ...

    def act(self, row: Row) -> Array: ...


class PolicyActor:
    """A policy with its carry."""

    def __init__(self, policy: Policy, seed: int, clock: Clock, sample: bool = False) -> None:
        self.policy, self.clock = policy, clock
        self.mode = Mode.COLLECT if sample else Mode.EVALUATE
        self.rng = make_generator(seed, STREAM, clock.env_steps, clock.updates)

    def begin(self) -> None:
        self._carry = self.policy.initial_carry(1)
        self._previous = self.policy.specs.action.zeros(1)

    def act(self, row: Row) -> Array:
        now = {**row, "previous_action": self._previous}
        self._previous, self._carry, _ = self.policy.act(now, self._carry, self.clock, self.rng, self.mode)
        return self._previous


class RandomActor:
    """Draws every action."""

    def __init__(self, specs: Specs, seed: int) -> None:
        self.specs = specs
        self.rng = make_generator(seed, "random play")

    def begin(self) -> None:
        """There is nothing to forget."""

    def act(self, row: Row) -> Array:
        return self.specs.action.sample(self.rng, 1)


@dataclass(frozen=True)
class Scene:
    """What is filmed."""

    env: EnvConfig
    seed: int
    title: str = ""
    episodes: int | None = 1
    """None goes on until the viewer has had enough."""
    max_frames: int = 1000
    fps: float | None = None
    should_stop: StopCheck = field(default=never)


@dataclass(frozen=True)
class Take:
    """One episode that was played and filmed."""

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


def film(actor: Actor, scene: Scene, open_sink: OpenSink, quiet: bool = False) -> list[Take]:
    """Play and film the scene; ``open_sink`` is given the frames per second. VideoError says why it cannot be."""
    try:
        vector = SyncVector(scene.env, scene.seed, STREAM, 1, render_mode="rgb_array")
    except ForeignCodeError:  # a matter of trust, not of drawing
        raise
    except (ReverieError, ImportError) as error:
        reason = getattr(error, "message", str(error))
        raise VideoError(f"{scene.env.id} cannot be drawn: {reason}", explain_rendering(error)) from error
    try:
        stage = _Stage(actor, scene, vector)
        with open_sink(stage.fps) as sink, _progress(stage, quiet) as task:
            return stage.play(sink, task)
    finally:
        vector.close()


def _progress(stage: _Stage, quiet: bool) -> AbstractContextManager[Task]:
    return progress(f"filming {stage.scene.env.id}", stage.expected_steps, quiet)


class _Stage:
    """Everything that an episode needs while it is filmed."""

    def __init__(self, actor: Actor, scene: Scene, vector: SyncVector) -> None:
        self.actor, self.scene, self.vector = actor, scene, vector
        speed = scene.fps or vector.render_fps
        self.every = 1 if scene.fps else max(1, math.ceil(speed / MOST_FPS))
        self.fps = speed / self.every
        self.limit = vector.specs.max_episode_steps or 0
        self.expected_steps = self.limit * (scene.episodes or 0) or None
        self.canvas = Canvas(scene.title)
        self.frames = 0

    def play(self, sink: FrameSink, task: Task) -> list[Take]:
        """All episodes; a viewer who closes the window ends them."""
        takes: list[Take] = []
        try:
            while self.scene.episodes is None or len(takes) < self.scene.episodes:
                takes.append(self._play_one(len(takes), sink, task))
        except ViewerLeft:
            pass
        return takes

    def _play_one(self, number: int, sink: FrameSink, task: Task) -> Take:
        total, length, shown = 0.0, 0, self.frames
        self.actor.begin()
        row = self.vector.reset()
        self._show(sink, number, total, length)
        while not is_last(row)[0]:
            if self.scene.should_stop():
                raise EvaluationStopped
            row = self.vector.step(self.actor.act(row))
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
        """Draw what the env looks like now, unless the film is long enough already."""
        if self.frames >= self.scene.max_frames:
            return
        several = f"{number + 1}:  " if self.scene.episodes != 1 else ""
        share = length / self.limit if self.limit else 0.0
        caption = Caption(f"return {as_return(total)}", f"{several}step {length:,}", share)
        self._last = self.canvas.draw(self._picture(), caption)
        self.frames += 1
        sink.add(self._last)

    def _picture(self) -> Any:
        try:
            return self.vector.render()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise VideoError(f"{self.scene.env.id} failed to draw: {reason}", explain_rendering(error)) from error
