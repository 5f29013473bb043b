"""Foresight files: ``foresight/<env steps>/`` with a video and a picture per image observation, and ``foresight.json``.

Runs that only learn from stored data count in updates instead of env steps. The metrics are also in metrics.jsonl, so
this has no state. If a file cannot be written, the run reports it once and continues.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from reverie.core.counters import Budget
from reverie.core.types import Array
from reverie.foresight.figures import draw_calibrations, draw_errors
from reverie.foresight.measure import Measurement
from reverie.foresight.tiles import compare_frames, reconstruction_picture
from reverie.log.media import encode_png
from reverie.log.recorder import Recorder
from reverie.log.video import is_installed, open_video
from reverie.log.video_frames import Canvas, Caption
from reverie.runs.logged_media import has_viewers
from reverie.store.files import write_bytes
from reverie.store.run_folder import FORESIGHT, FORESIGHT_NUMBERS, RunFolder, write_json
from reverie.training.evaluator import Evaluator
from reverie.training.session import Session

FPS = 8.0
LONG_SIDE = 768
"""Frames are enlarged as long as neither side becomes longer than this."""
SHOWN_ENVS = 3


class Foresight:
    """Writes the foresight of each evaluation to files and sends it to the sinks."""

    def __init__(self, evaluator: Evaluator, folder: RunFolder, say: Callable[[str], None], budget: Budget) -> None:
        self.evaluator = evaluator
        self.folder = folder.path / FORESIGHT
        self.say = say
        self.budget = budget
        self.is_on = True

    def begin(self, session: Session) -> None:
        """Delete the files after the checkpoint of a resume, which will write them again."""
        for path in self.folder.glob("*"):
            if path.name.isdecimal() and int(path.name) > session.counters.progress(self.budget):
                shutil.rmtree(path, ignore_errors=True)

    def end_cycle(self, session: Session) -> None:
        """Nothing to do: only evaluations matter here."""

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        look, position = self.evaluator.last_foresight, session.counters.progress(self.budget)
        if look is None or not self.is_on:
            return
        try:
            write_look(look, self.folder / str(position), {self.budget.counter: position})
            if has_viewers(session.config):
                show_look(look, session.recorder)
        except Exception as error:  # training must not fail because of an encoder or a full disk
            self.is_on = False
            with suppress(OSError):
                text = getattr(error, "message", f"{type(error).__name__}: {error}")
                self.say(f"No foresight files from now on. Training continues. {text}")


def write_look(look: Measurement, folder: Path, about: dict[str, Any]) -> None:
    """Write all files. The JSON file comes last, so it exists only with all the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, frames in open_loop_frames(look).items():
        _write_video(folder / f"open-loop-{file_name(key)}.{'mp4' if is_installed() else 'gif'}", frames, look)
        write_bytes(folder / f"reconstruction-{file_name(key)}.png", encode_png(reconstructions(look, key)))
    write_json(folder / FORESIGHT_NUMBERS, {**about, **to_json(look)})


def show_look(look: Measurement, recorder: Recorder) -> None:
    """Send videos and reconstructions of images, errors by steps ahead, and calibrations to the sinks."""
    for key, frames in open_loop_frames(look).items():
        recorder.show("video", f"open_loop/{key}", frames=frames, fps=FPS)
        recorder.show("figure", f"reconstruction/{key}", image=reconstructions(look, key))
    recorder.show("figure", "open_loop/errors", image=draw_errors(look.errors))
    recorder.show("figure", "calibration/bins", image=draw_calibrations(look.calibrations))


def to_json(look: Measurement) -> dict[str, Any]:
    """Errors by steps ahead, calibrations and all metrics."""
    open_loop = {
        key: {
            "mse": errors.model.tolist(), "repeat_last_mse": errors.repeat_last.tolist(),
            "dreams": errors.counts.tolist(),
        }
        for key, errors in look.errors.items()
    }  # fmt: skip
    calibration = {
        key: {"predicted": found.predicted.tolist(), "actual": found.actual.tolist(), "rows": found.counts.tolist()}
        for key, found in look.calibrations.items()
    }
    return {"steps": look.steps, "open_loop": open_loop, "calibration": calibration, "metrics": look.metrics()}


def open_loop_frames(look: Measurement) -> dict[str, Array]:
    """For each image key, frames that compare truth, model and error in the first few envs."""
    images = [key for key in look.observations if look.rows[key].dtype == np.uint8 and look.rows[key].ndim == 5]
    shown = {key: (look.rows[key], *_model_images(look, key)) for key in images}
    return {key: compare_frames(*(values[:SHOWN_ENVS] for values in each)) for key, each in shown.items()}


def reconstructions(look: Measurement, key: str) -> Array:
    """A picture of images and their reconstructions."""
    return reconstruction_picture(look.rows[key][:SHOWN_ENVS], look.seen[key][:SHOWN_ENVS])


def file_name(key: str) -> str:
    """An observation key in a form that is safe in file names."""
    return "".join(letter if letter.isalnum() else "-" for letter in key)


def _model_images(look: Measurement, key: str) -> tuple[Array, Array]:
    """The model's images (B, T, ...): open-loop predictions, and reconstructions outside of dreams.

    Also returns which of them are predictions (B, T).
    """
    images, is_dreamt = look.seen[key].copy(), np.zeros(look.rows["is_first"].shape, bool)
    dream, step = np.nonzero(look.is_real)
    env, time = look.starts[dream].T
    images[env, time + 1 + step] = look.ahead[key][dream, step]
    is_dreamt[env, time + 1 + step] = True
    return images, is_dreamt


def _write_video(path: Path, frames: Array, look: Measurement) -> None:
    first = int(look.starts[0, 1]) + 1
    factor = max(1, LONG_SIDE // max(frames.shape[1:3]))
    frames = frames.repeat(factor, axis=1).repeat(factor, axis=2)
    canvas = Canvas("truth, model, error")
    with open_video(path, FPS) as video:
        for time, frame in enumerate(frames):
            ahead = (time - first) % look.steps + 1
            text = "observed" if time < first else f"{ahead} step{'s' if ahead > 1 else ''} ahead"
            video.add(canvas.draw(frame, Caption(text, f"row {time + 1}", (time + 1) / len(frames))))
