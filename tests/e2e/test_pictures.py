"""TensorBoard and W&B receive scalars, histograms, videos and figures, which do not change the run."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reverie import api
from reverie.foresight.figures import draw_curve
from reverie.log.media import LONGEST_SIDE, MOST_FRAMES
from reverie.runs import logged_media

WORDS = (
    "phases.learn.collect.rows=64", "phases.learn.evaluate.every_steps=128", "log.every_steps=64",
    "evaluate.final_episodes=2", "algorithm.network.units=[8]",
)  # fmt: skip
OFF = ("preflight.enabled=false", "monitor.enabled=false", "video.enabled=false", "log.report=false")


def train(folder: Path, *words: str, quiet: bool = True) -> Path:
    return api.train("CartPole-v1:ppo", *WORDS, *words, steps=256, runs_dir=folder, quiet=quiet).path


def read_events(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """All events in the files below a folder, by kind and name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, dict[str, list[Any]]] = {"scalars": {}, "histograms": {}, "images": {}}
    for path in sorted(folder.rglob("*tfevents*")):
        events = EventAccumulator(str(path)).Reload()
        for kind, names in found.items():
            for name in events.Tags()[kind]:
                names.setdefault(name, []).extend(getattr(events, kind.capitalize())(name))
    return found


@pytest.mark.needs("tensorboard")
@pytest.mark.needs("video")
def test_tensorboard_receives_everything_and_training_is_unchanged(runs_dir: Path) -> None:
    run = train(runs_dir, "log.tensorboard=true", "log.csv=true", "video.enabled=true", quiet=False)
    plain = train(runs_dir, *OFF)
    assert (run / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    assert policy(run) == policy(plain)
    found = read_events(run / "tensorboard")
    assert {"evaluate/return_mean", "update/loss", "collect/return"} <= set(found["scalars"])
    weights = [name for name in found["histograms"] if name.startswith("weights/")]
    assert len(weights) >= 4
    steps = {event.step for event in found["histograms"]["evaluate/returns"]}
    assert steps == {event.step for event in found["scalars"]["evaluate/return_mean"]}
    assert set(found["images"]) == {"evaluate/curve", "videos/best", "videos/last"}
    (video,) = found["images"]["videos/last"]
    with Image.open(io.BytesIO(video.encoded_image_string)) as animation:
        assert animation.format == "GIF"
        assert 1 < animation.n_frames <= MOST_FRAMES  # type: ignore[attr-defined]
        assert max(animation.size) <= LONGEST_SIDE


def policy(run: Path) -> bytes:
    return (run / "policies/final/policy.safetensors").read_bytes()


@pytest.mark.needs("wandb")
@pytest.mark.needs("video")
def test_wandb_receives_images(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    run = train(runs_dir, *OFF, "log.wandb.mode=offline", "video.enabled=true")
    media = [path.name.partition("_")[0] for path in (run / "wandb").glob("offline-run-*/files/media/**/*.*")]
    assert sorted(media) == ["best", "curve", "last"]


def test_histograms_of_large_weights_are_subsampled() -> None:
    state = {"a": {"b": np.arange(25_001.0)}, "count": 3, "c": np.zeros(0, np.float32), "n": np.arange(4)}
    (big, small) = logged_media._arrays(state)
    assert big[0] == "a/b"
    assert big[1].tolist() == list(range(0, 25_001, 3))
    assert (small[0], small[1].size) == ("c", 0)
    many = {str(number): np.zeros(1) for number in range(2 * logged_media.MOST_HISTOGRAMS)}
    assert len(list(logged_media._arrays(many))) == logged_media.MOST_HISTOGRAMS


def test_curve_is_written_as_an_image() -> None:
    points = np.array([[0.0, 1.0, 0.5, 1.5], [10.0, np.inf, 1.0, np.inf]])
    image = draw_curve(points, "title with $signs$", "env steps", goal=2.0)
    assert (image.dtype, image.shape[2]) == (np.uint8, 3)
    assert len(np.unique(image)) > 10
