"""Records that are not numbers: histograms, videos and figures. Sinks that cannot show them ignore them.

* ``histogram``: ``name``, ``values`` (an array of any shape)
* ``video``: ``name``, ``frames`` (time, height, width, 3; uint8), ``fps``
* ``figure``: ``name``, ``image`` (height, width, 3 or 4; uint8)

All have ``env_steps``. They are not written to JSONL.
"""

from __future__ import annotations

import io
import math
from typing import Any, Protocol

import numpy as np

KINDS = ("histogram", "video", "figure")
BINS = 30
MOST_FRAMES, LONGEST_SIDE = 120, 320
"""Limits of a preview: an animation of at most about two megabytes, however long the video is."""


class FrameSink(Protocol):
    """Receives frames (H, W, 3) of one size. A window raises ViewerLeft when it is closed."""

    def add(self, frame: np.ndarray) -> None: ...


class Preview:
    """Passes frames on and keeps a smaller video: every frame at first, every second once there are too many ..."""

    def __init__(self, sink: FrameSink, fps: float) -> None:
        self.sink = sink
        self._fps = fps
        self._seen, self._every = 0, 1
        self._kept: list[np.ndarray] = []

    def add(self, frame: np.ndarray) -> None:
        self.sink.add(frame)
        if self._seen % self._every == 0:
            self._kept.append(_shrink(frame))
        self._seen += 1
        if len(self._kept) > MOST_FRAMES:
            self._kept = self._kept[::2]
            self._every *= 2

    def content(self) -> dict[str, Any]:
        """The content of a video record. It lasts as long as the whole video."""
        return {"frames": np.stack(self._kept), "fps": self._fps / self._every}


def _shrink(frame: np.ndarray) -> np.ndarray:
    """A copy, reduced by a whole number if it is too large."""
    from PIL import Image

    factor = math.ceil(max(frame.shape[:2]) / LONGEST_SIDE)
    return np.array(Image.fromarray(_as_bytes(frame)).reduce(factor)) if factor > 1 else frame.copy()


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """An animation that repeats for ever."""
    from PIL import Image

    first, *rest = [Image.fromarray(frame) for frame in _as_bytes(frames)]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=rest, duration=max(20, round(1000 / fps)), loop=0)
    return file.getvalue()


def encode_png(image: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(_as_bytes(image)).save(file, "PNG")
    return file.getvalue()


def histogram_of(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, bin edges, and the finite values."""
    flat = np.asarray(values, np.float64).ravel()
    flat = flat[np.isfinite(flat)]
    counts, edges = np.histogram(flat, BINS)
    return counts, edges, flat


def _as_bytes(image: np.ndarray) -> np.ndarray:
    if image.dtype != np.uint8:
        raise ValueError(f"an image must be an array of uint8, not {image.dtype}")
    return image
