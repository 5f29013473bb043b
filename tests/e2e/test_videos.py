"""Videos of a run: which are kept, and that recording changes nothing and its errors stop nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie import api
from reverie.core.rng import derive_seed
from reverie.log.video_frames import VideoError, as_return
from reverie.runs import videos
from reverie.runs.policies import PolicyShelf
from reverie.store.checkpoint import CheckpointFolder
from reverie.training.session import Session
from tests.e2e.test_api import TINY
from tests.e2e.test_reproducible import contents
from tests.resume.pieces import CHECKING, assert_equal_runs
from tests.unit.envs.broken_envs import BrokenDrawing
from tests.videos import read_mp4

pytestmark = pytest.mark.needs("video")
COUNTING = ("Reverie/Counting-v0:ppo", *TINY, "env.kwargs={length: 12, action: continuous}")
COUNTING += ("phases.learn.evaluate={episodes: 1, every_steps: 32}", "checkpoint.every_steps=32")
RECORDED = (*COUNTING, "video.enabled=true")


def train(folder: Path, *words: str, steps: int = 128) -> Path:
    return api.train(*words, seed=1, steps=steps, runs_dir=folder).path


def about(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "videos" / f"{name}.json").read_text())
    return found


@pytest.fixture
def worsening(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first policy stays the best."""
    _get_worse(monkeypatch)


def _get_worse(patch: pytest.MonkeyPatch) -> None:
    end_evaluation = PolicyShelf.end_evaluation

    def end_worse_evaluation(self: PolicyShelf, session: Session, summary: dict[str, float]) -> None:
        end_evaluation(self, session, {**summary, "return_mean": -float(session.counters.env_steps)})

    patch.setattr(PolicyShelf, "end_evaluation", end_worse_evaluation)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        _get_worse(patch)
        return train(tmp_path_factory.mktemp("recorded"), *RECORDED, "video.every_evaluations=1")


def test_best_and_last_are_kept_and_described(recorded: Path) -> None:
    status = json.loads((recorded / "status.json").read_text())
    assert sorted(path.name for path in (recorded / "videos").iterdir()) == [
        "best.json", "best.mp4", "last.json", "last.mp4",
    ]  # fmt: skip
    best, last = about(recorded, "best"), about(recorded, "last")
    assert (best["policy"], best["score"]) == (status["best_policy"], status["best_score"])
    assert best["policy"] == f"best-{best['env_steps']}"
    assert (last["policy"], last["env_steps"]) == ("final", status["env_steps"])
    assert best["env_steps"] < last["env_steps"], "the test needs a best policy that is not the last"
    for description in (best, last):
        assert description["episode_seed"] == derive_seed(1, "evaluate", 0)
        assert (description["length"], description["frames"], description["is_cut"]) == (12, 13, False)
    log = (recorded / "run.log").read_text()
    assert f"Videos: one episode of the best policy (return {as_return(best['return'])}), " in log
    assert f"one of the final policy (return {as_return(last['return'])}): {recorded / 'videos'}" in log


def test_video_shows_the_described_episode(recorded: Path) -> None:
    for name in ("best", "last"):
        _, frames = read_mp4(recorded / "videos" / f"{name}.mp4")
        assert len(frames) == 13 + 10
        env = api.load(str(recorded)).make_env("rgb_array")
        env.reset(seed=about(recorded, name)["episode_seed"])
        difference = np.abs(frames[0][4:512:8, 4:512:8].astype(int) - env.render())
        env.close()
        assert difference.mean() < 2


def test_return_is_that_of_the_policy(recorded: Path) -> None:
    for name, which in (("best", "best"), ("last", "final")):
        agent = api.load(str(recorded), which=which)  # type: ignore[arg-type]
        env = agent.make_env()
        observation, _ = env.reset(seed=derive_seed(1, "evaluate", 0))
        total, is_over = 0.0, False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            total, is_over = total + reward, terminated or truncated
        env.close()
        assert total == about(recorded, name)["return"]


@pytest.mark.parametrize("sample", ["false", "true"])
def test_recording_does_not_change_training(tmp_path: Path, sample: str) -> None:
    words = (*COUNTING, f"evaluate.sample={sample}")
    without = train(tmp_path / "without", *words, "video.enabled=false")
    with_videos = train(tmp_path / "with", *words, "video.enabled=true", "video.every_evaluations=1")
    assert (with_videos / "videos" / "best.mp4").exists()
    assert not (without / "videos").exists()
    found = contents(with_videos)
    assert found == contents(without)
    assert {"metrics.jsonl", "policies/final/policy.safetensors"} <= set(found)


def test_recording_does_not_change_an_algorithm_with_state_in_act(tmp_path: Path) -> None:
    """The checking agent counts the actions it samples."""
    words = (*CHECKING, "evaluate.sample=true")
    without = train(tmp_path / "without", *words, "video.enabled=false")
    with_videos = train(tmp_path / "with", *words, "video.enabled=true", "video.every_evaluations=1")
    assert (with_videos / "videos" / "last.mp4").exists()
    assert_equal_runs(with_videos, without)
    assert contents(with_videos) == contents(without)


@pytest.mark.usefixtures("worsening")
def test_short_run_is_recorded_only_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = count_recordings(monkeypatch)
    run = train(tmp_path, *RECORDED)
    assert recordings == [("last", about(run, "last")["env_steps"]), ("best", about(run, "best")["env_steps"])]
    assert len(run.joinpath("metrics.jsonl").read_text().split("evaluate/return_mean")) > 4


def test_best_policy_is_not_recorded_twice_if_it_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = count_recordings(monkeypatch)
    run = train(tmp_path, *RECORDED, "phases.learn.evaluate.every_steps=1000")
    assert [name for name, _ in recordings] == ["last"]
    assert (run / "videos/best.mp4").read_bytes() == (run / "videos/last.mp4").read_bytes()
    assert about(run, "best")["policy"] == f"best-{about(run, 'last')['env_steps']}"


def count_recordings(patch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    recordings: list[tuple[str, int]] = []
    original = videos.Videos._record

    def record(self: videos.Videos, name: str, policy: Any, clock: Any, about: dict[str, Any]) -> None:
        recordings.append((name, clock.env_steps))
        original(self, name, policy, clock, about)

    patch.setattr(videos.Videos, "_record", record)
    return recordings


@pytest.mark.usefixtures("worsening")
def test_resume_from_an_earlier_checkpoint_recreates_the_videos(recorded: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(recorded, tmp_path / recorded.name))
    before = {name: about(run, name) for name in ("best", "last")}
    earlier = CheckpointFolder(run).all()[-2].counters["env_steps"]
    assert earlier < before["last"]["env_steps"]
    api.resume(str(run), checkpoint=str(earlier))
    assert {name: about(run, name) for name in ("best", "last")} == before


class Full:
    """An encoder on a full disk."""

    def __init__(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def break_encoder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("reverie.log.video._find_ffmpeg", lambda: "/bin/false")


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("reverie.log.video.Mp4Writer", Full)


def fill_disk_for_json(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("reverie.runs.videos.write_json", Full)


def remove_package(patch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise VideoError("mp4 files need ffmpeg, which is not installed.", "Install it.")

    patch.setattr("reverie.log.video._find_ffmpeg", missing)


@pytest.mark.usefixtures("worsening")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (break_encoder, "ffmpeg failed"),
        (fill_disk, "No space left on device"),
        (fill_disk_for_json, "No space left on device"),
        (remove_package, "which is not installed"),
    ],
)
def test_video_error_is_reported_once_and_training_continues(
    spoil: Callable[[pytest.MonkeyPatch], None], reason: str, recorded: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spoil(monkeypatch)
    run = train(tmp_path, *RECORDED, "video.every_evaluations=1")
    log = (run / "run.log").read_text()
    assert log.count("No videos from now on") == 1
    assert reason in log
    assert contents(run) == contents(recorded)
    assert [path.name for path in run.glob("videos/*.json")] == []


def test_env_that_cannot_render_is_reported_once(tmp_path: Path) -> None:
    name = f"{BrokenDrawing.__module__}.{BrokenDrawing.__qualname__}"
    run = train(tmp_path, f"{name}:ppo", "env.max_episode_steps=5", *TINY, "video.enabled=true", steps=64)
    log = (run / "run.log").read_text()
    assert log.count("No videos from now on") == 1
    assert "MUJOCO_GL=egl" in log
    assert json.loads((run / "status.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    ("env", "is_installed", "expected"),
    [("Reverie/Motion-v0", True, True), ("Reverie/Motion-v0", False, False), ("Reverie/Constant-v0", True, False)],
)
def test_auto_is_resolved_at_creation(
    env: str, is_installed: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.config.decide.can_record", lambda can_render: is_installed and can_render)
    assert api.make_config(f"{env}:ppo").video.enabled is expected
    assert api.make_config(f"{env}:ppo", ["video.enabled=true"]).video.enabled is True
