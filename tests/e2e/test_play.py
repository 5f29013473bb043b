"""``reverie play`` and ``reverie record``: files, windows, and errors without a screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import reverie as package
from reverie import api
from reverie.core.errors import ReverieError
from reverie.core.rng import derive_seed
from reverie.core.types import Array
from reverie.log.video import ViewerLeft
from reverie.store.checkpoint import CheckpointFolder
from tests.e2e.conftest import Command
from tests.videos import read_mp4


def gif_frames(path: Path) -> int:
    with Image.open(path) as image:
        return int(getattr(image, "n_frames", 1))


def test_play_writes_a_gif_of_a_run(reverie: Command, trained: api.Run, tmp_path: Path) -> None:
    done = reverie("play", str(trained.path), "--gif", "--out", "deep/a.gif", "--seed", "4", "--episodes", "2")
    assert done.code == 0, done.err
    returns, path = done.out.splitlines()
    assert path == "deep/a.gif"
    scores = [float(word) for word in returns.removeprefix("returns: ").split(", ")]
    assert len(scores) == 2
    # CartPole gives 1 per step and 50 steps per second, of which every second is drawn, and a second of rest.
    steps = [int(score) for score in scores]
    assert 0 < gif_frames(tmp_path / path) <= sum(1 + (n + 1) // 2 + 25 for n in steps)


def test_random_policy_plays(reverie: Command, tmp_path: Path) -> None:
    done = reverie("play", "--random", "Reverie/Counting-v0", "env.kwargs.length=4", "--gif")
    assert (done.code, done.out) == (0, "returns: 10.0\nReverie-Counting-v0-random.gif\n")
    assert gif_frames(tmp_path / "Reverie-Counting-v0-random.gif") > 1


def test_without_a_screen_the_video_is_announced(reverie: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.envs.gl.has_screen", lambda: False)
    lines = reverie("play", "--random", "Reverie/Counting-v0", "env.kwargs.length=4").out.splitlines()
    assert lines[0] == "No screen, so a video is written instead."
    assert lines[-1].startswith("Reverie-Counting-v0-random.")


def test_playing_by_keyboard_needs_a_screen(reverie: Command) -> None:
    done = reverie("play", "CartPole-v1")
    assert done.code == 2
    assert "no screen" in done.err
    assert "reverie play --random" in done.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("play", "CartPoel-v1"), "Did you mean 'CartPole-v1'"),
        (("play", "--random", "CartPoel-v1"), "Did you mean 'CartPole-v1'"),
        (("play", "@last"), "There are no runs"),
        (("record", "nothing"), "There are no runs"),
        (("play", "CartPole-v1", "--keys", "a=7"), "is not an action of"),
        (("play", "--random", "CartPole-v1", "--keys", "a=0"), "--keys is only for playing an env yourself"),
        (("play", "--random", "CartPole-v1", "--out", "a.avi"), "does not end like a video file"),
        (("play", "--random", "CartPole-v1", "--gif", "--out", "a.mp4"), "does not end with .gif"),
        (("play", "--random", "Reverie/Constant-v0", "--gif"), "Reverie/Constant-v0"),
    ],
)
def test_wrong_arguments_are_explained(reverie: Command, words: tuple[str, ...], hint: str) -> None:
    done = reverie(*words)
    assert done.code != 0
    assert hint in done.err
    assert len(done.err.splitlines()) < 8


@pytest.mark.needs("video")
def test_record_writes_into_the_run_folder(reverie: Command, trained: api.Run) -> None:
    words = ("record", str(trained.path), "--policy", "final", "--max-frames", "5")
    done = reverie(*words, "--json")
    result = json.loads(done.out)
    path = trained.path / "videos" / "record-final.mp4"
    assert Path(result["path"]) == path
    (take,) = result["episodes"]
    assert take["episode_seed"] == derive_seed(1, "evaluate", 0)
    assert (take["frames"], take["is_cut"]) == (5, True)
    assert len(read_mp4(path)[1]) == 5
    lines = reverie(*words).out.splitlines()
    assert lines[0].startswith("returns: ")
    assert lines[-1] == str(path)


def test_record_shows_an_evaluated_episode(trained: api.Run, tmp_path: Path) -> None:
    done = package.record(str(trained.path), 3, "final", tmp_path / "a.gif", max_frames=2)
    assert np.mean(done.returns) == trained.status["final_score"]
    assert done.is_cut
    other = package.record(str(trained.path), 3, "final", tmp_path / "a.gif", seed=77, max_frames=2)
    assert [take.episode_seed for take in other.takes] == [derive_seed(77, "evaluate", n) for n in range(3)]


def test_a_checkpoint_can_be_recorded(trained: api.Run, tmp_path: Path) -> None:
    newest = str(CheckpointFolder(trained.path).all()[-1].counters["env_steps"])
    found = [
        package.record(str(trained.path), 2, which, tmp_path / "a.gif", max_frames=2).returns
        for which in (newest, "final")
    ]
    assert found[0] == found[1]
    with pytest.raises(ReverieError, match="There is no policy 'besst'"):
        package.record(str(trained.path), which="besst", out=tmp_path / "a.gif")
    with pytest.raises(ReverieError, match="no checkpoint '7'"):
        package.record(str(trained.path), which="7", out=tmp_path / "a.gif")


class FakeWindow:
    """A fake window that presses keys and closes after some frames."""

    opened: list[FakeWindow] = []  # noqa: RUF012

    def __init__(self, title: str, fps: float) -> None:
        self.title, self.fps = title, fps
        self.frames: list[Array] = []
        self.pressed = {"right"}
        self.patience = 40
        self.opened.append(self)

    def add(self, frame: Array) -> None:
        self.frames.append(frame.copy())
        if len(self.frames) > self.patience:
            raise ViewerLeft

    def wait(self) -> None:
        self.patience -= 1
        if self.patience < 0:
            raise ViewerLeft

    def take_tapped(self) -> set[str]:
        self.patience -= 1
        return {"right"} if self.patience % 2 else set()

    def close(self) -> None: ...


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("reverie.envs.gl.has_screen", lambda: True)
    monkeypatch.setattr("reverie.log.window.Window", FakeWindow)
    FakeWindow.opened.clear()
    return FakeWindow.opened


def test_a_run_is_watched_in_a_window(reverie: Command, trained: api.Run, window: list[FakeWindow]) -> None:
    done = reverie("play", str(trained.path), "--fps", "20", "--episodes", "1")
    assert done.code == 0, done.err
    assert window[0].fps == 20
    assert len(window[0].frames) > 5


def test_keyboard_controls_the_env(reverie: Command, window: list[FakeWindow]) -> None:
    """Pushing right all the time, the pole falls in about ten steps."""
    done = reverie("play", "CartPole-v1", "--episodes", "1")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "CartPole-v1: runs in real time. Press q or escape to quit."
    assert lines[1].split() == ["left", "0"]
    assert 7 < float(lines[-1].removeprefix("returns: ")) < 12
    assert window[0].fps == 15


def test_turn_based_game_waits_for_keys(reverie: Command, window: list[FakeWindow]) -> None:
    done = reverie("play", "FrozenLake-v1", "env.kwargs.is_slippery=false", "--keys", "right=1")
    assert done.code == 0, done.err
    assert "waits for your keys" in done.out
    assert 1 < len(window[0].frames) < 20
