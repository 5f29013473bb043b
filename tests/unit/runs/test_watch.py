"""Watching: the episodes of evaluations, at the env's speed, with the right length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reverie.core.rng import derive_seed, make_generator
from reverie.core.types import Array, Row
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs
from reverie.envs.suites.reverie.counting import CountingEnv
from reverie.log.video import ViewerLeft
from reverie.log.video_frames import VideoError
from reverie.runs.watch import Scene, Take, show_episodes
from reverie.training.evaluator import EvaluationStopped
from reverie.training.interaction import RandomPlayer
from tests.unit.envs.broken_envs import BrokenDrawing

LENGTH = 8


class Reel:
    """Keeps the frames and the speed; has had enough after ``patience`` frames."""

    def __init__(self, patience: int = 10**6) -> None:
        self.frames: list[Array] = []
        self.fps = 0.0
        self.patience = patience
        self.is_closed = False

    @contextmanager
    def open(self, fps: float) -> Iterator[Reel]:
        self.fps = fps
        yield self
        self.is_closed = True

    def add(self, frame: Array) -> None:
        if len(self.frames) == self.patience:
            raise ViewerLeft
        self.frames.append(frame.copy())


class Watching(RandomPlayer):
    """Random actions, and a list of the rows that arrived."""

    def __init__(self, config: EnvConfig) -> None:
        super().__init__(make_specs(config), make_generator(0))
        self.begun = 0
        self.rows: list[Row] = []

    def begin(self, num_envs: int) -> None:
        self.begun += 1

    def act(self, now: Row) -> tuple[Array, Row]:
        self.rows.append(now)
        return super().act(now)


def config(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id="Reverie/Counting-v0", kwargs={"length": LENGTH, **kwargs})


def shoot(scene: Scene, reel: Reel) -> tuple[list[Take], Watching]:
    player = Watching(scene.env)
    return show_episodes(player, scene, reel.open), player


def test_an_episode_from_its_first_to_its_last_frame() -> None:
    reel = Reel()
    takes, player = shoot(Scene(config(), seed=3), reel)
    assert takes == [Take(0, derive_seed(3, "evaluate", 0), sum(range(1, LENGTH + 1)), LENGTH, LENGTH + 1)]
    assert reel.fps == 10
    assert len(reel.frames) == LENGTH + 1 + 10  # the last one stays for a second
    assert (reel.frames[-1] == reel.frames[-11]).all()
    assert not (reel.frames[0] == reel.frames[1]).all()
    assert player.begun == 1


def test_episodes_are_those_of_evaluations() -> None:
    takes, player = shoot(Scene(config(), seed=3, episodes=3), Reel())
    assert [take.episode_seed for take in takes] == [derive_seed(3, "evaluate", number) for number in range(3)]
    first_rows = [row["obs"][0] for row in player.rows if row["is_first"][0]]
    for row, take in zip(first_rows, takes, strict=True):
        assert row[0] == take.episode_seed % 1_000_003
    assert player.begun == 3


def test_fast_envs_leave_out_frames_but_never_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CountingEnv.metadata, "render_fps", 75)
    reel = Reel()
    takes, _ = shoot(Scene(config(), seed=0), reel)
    assert reel.fps == 25
    assert takes[0].frames == 1 + 8 // 3 + 1
    asked = Reel()
    shoot(Scene(config(), seed=0, fps=60), asked)
    assert (asked.fps, len(asked.frames)) == (60, LENGTH + 1 + 60)


def test_repeated_actions_take_their_time() -> None:
    reel = Reel()
    repeating = EnvConfig.model_validate(
        {"id": "Reverie/Counting-v0", "wrappers": [{"kind": "action_repeat", "repeats": 2}]}
    )
    shoot(Scene(repeating, seed=0), reel)
    assert reel.fps == 5


def test_a_long_episode_is_cut_but_played_to_its_end() -> None:
    reel = Reel()
    takes, _ = shoot(Scene(config(), seed=3, max_frames=4), reel)
    assert (takes[0].frames, takes[0].is_cut, takes[0].length) == (4, True, LENGTH)
    assert len(reel.frames) == 4


def test_a_viewer_may_leave() -> None:
    reel = Reel(patience=LENGTH + 1 + 10 + 3)
    takes, _ = shoot(Scene(config(), seed=3, episodes=None), reel)
    assert len(takes) == 1
    assert reel.is_closed


def test_a_stop_is_obeyed() -> None:
    with pytest.raises(EvaluationStopped):
        shoot(Scene(config(), seed=3, should_stop=lambda: True), Reel())


def test_an_env_without_pictures_is_explained() -> None:
    with pytest.raises(VideoError, match=r"failed to render|cannot be rendered"):
        shoot(Scene(EnvConfig(id="Reverie/Constant-v0"), seed=0), Reel())


def test_an_env_that_fails_to_draw_is_explained() -> None:
    name = f"{BrokenDrawing.__module__}.{BrokenDrawing.__qualname__}"
    with pytest.raises(VideoError, match="failed to render: OSError: no OpenGL here") as caught:
        shoot(Scene(EnvConfig(id=name), seed=0), Reel())
    assert "MUJOCO_GL=egl" in caught.value.fix
