"""Pictures: encoded, shown by TensorBoard, ignored by JSONL, and not doubled by a resume."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reverie.core.counters import Counters
from reverie.log.loggers import RunInfo
from reverie.log.media import LONGEST_SIDE, MOST_FRAMES, Preview, encode_gif, encode_png, histogram_of
from reverie.log.recorder import Recorder
from reverie.log.sinks import JsonlSink, read_jsonl

FRAMES = np.stack([np.full((8, 12, 3), 60 * number, np.uint8) for number in range(4)])


def show_all(recorder: Recorder) -> None:
    recorder.show("histogram", "update/weights", values=np.arange(6.0).reshape(2, 3))
    recorder.show("video", "evaluate/video", frames=FRAMES, fps=10)
    recorder.show("figure", "evaluate/figure", image=FRAMES[1])


def test_a_gif_holds_all_frames() -> None:
    with Image.open(io.BytesIO(encode_gif(FRAMES, fps=10))) as picture:
        assert (picture.format, picture.size, picture.n_frames) == ("GIF", (12, 8), 4)  # type: ignore[attr-defined]
        assert picture.info["duration"] == 100


def test_a_png_is_the_image() -> None:
    with Image.open(io.BytesIO(encode_png(FRAMES[2]))) as picture:
        assert np.array_equal(np.asarray(picture), FRAMES[2])
    with pytest.raises(ValueError, match="uint8"):
        encode_png(FRAMES[2].astype(float))


def test_a_histogram_leaves_out_what_is_not_finite() -> None:
    counts, edges, values = histogram_of([[1.0, np.nan], [3.0, np.inf]])
    assert counts.sum() == 2
    assert (edges[0], edges[-1]) == (1.0, 3.0)
    assert values.tolist() == [1.0, 3.0]


class Counting:
    """A sink that remembers the first pixel of each frame."""

    def __init__(self) -> None:
        self.frames: list[int] = []

    def add(self, frame: np.ndarray) -> None:
        self.frames.append(int(frame[0, 0, 0]))


@pytest.mark.parametrize("count", [1, 50, MOST_FRAMES, 2 * MOST_FRAMES + 1, 1000])
def test_a_preview_is_small_and_lasts_as_long(count: int) -> None:
    sink = Counting()
    preview, frame = Preview(sink, fps=25.0), np.zeros((400, 2 * LONGEST_SIDE + 1, 3), np.uint8)
    for number in range(count):
        frame[:] = number % 256  # drawn into the same memory, as films are
        preview.add(frame)
    content = preview.content()
    frames, every = content["frames"], round(25.0 / content["fps"])
    assert sink.frames == [number % 256 for number in range(count)]
    assert frames[:, 0, 0, 0].tolist() == sink.frames[::every]
    assert min(count, MOST_FRAMES // 2) <= len(frames) <= MOST_FRAMES
    assert max(frames.shape[1:3]) <= LONGEST_SIDE


def test_jsonl_ignores_pictures(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    show_all(Recorder(Counters(), 1, [sink]))
    sink.close()
    assert all(path.read_text() == "" for path in tmp_path.iterdir())


def test_alerts_have_a_file_and_say_where(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    counters = Counters()
    counters.env_steps = 12
    Recorder(counters, 1, [sink]).alert("warning", "entropy", "entropy is gone")
    sink.close()
    expected = {"env_steps": 12, "updates": 0, "level": "warning", "rule": "entropy", "message": "entropy is gone"}
    assert read_jsonl(tmp_path / "alerts.jsonl") == [expected]


def start_tensorboard(folder: Path, done: int, counter: str) -> tuple[Recorder, Any]:
    from reverie.log.tensorboard import TensorBoardConfig, TensorBoardSink

    counters = Counters(**{counter: done})
    sink = TensorBoardSink(TensorBoardConfig(), RunInfo(folder, counters.env_steps, counters.updates, counter))
    return Recorder(counters, 1, [sink]), counters


@pytest.mark.needs("tensorboard")
@pytest.mark.parametrize("counter", ["env_steps", "updates"])
def test_tensorboard_shows_pictures_once_after_a_resume(tmp_path: Path, counter: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder, counters = start_tensorboard(tmp_path, 0, counter)
    for done in (10, 20):
        setattr(counters, counter, done)
        show_all(recorder)
    recorder.alert("warning", "rule", "text")
    recorder.close()
    recorder, counters = start_tensorboard(tmp_path, 10, counter)  # from a checkpoint: what came at 20 comes again
    setattr(counters, counter, 20)
    show_all(recorder)
    recorder.close()
    steps: dict[str, list[int]] = {"update/weights": [], "evaluate/video": [], "evaluate/figure": []}
    for path in sorted((tmp_path / "tensorboard/media").iterdir()):
        events = EventAccumulator(str(path)).Reload()
        for name in events.Tags()["images"]:
            steps[name] += [event.step for event in events.Images(name)]
        for name in events.Tags()["histograms"]:
            steps[name] += [event.step for event in events.Histograms(name)]
            assert events.Histograms(name)[0].histogram_value.num == 6
    assert {name: sorted(seen) for name, seen in steps.items()} == {name: [10, 20] for name in steps}
