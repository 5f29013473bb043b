"""Records that are not numbers: histograms, videos and figures. Sinks that can show them do, the others ignore them.

* ``histogram``: ``name``, ``values`` (an array of any shape)
* ``video``: ``name``, ``frames`` (time, height, width, 3; uint8), ``fps``
* ``figure``: ``name``, ``image`` (height, width, 3 or 4; uint8)

All have ``env_steps``. They are not written to JSONL.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

KINDS = ("histogram", "video", "figure")
BINS = 30


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """An animation that browsers play for ever."""
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
    """Counts, edges of the bins, and the finite values themselves."""
    flat = np.asarray(values, np.float64).ravel()
    flat = flat[np.isfinite(flat)]
    counts, edges = np.histogram(flat, BINS)
    return counts, edges, flat


def _as_bytes(image: np.ndarray) -> np.ndarray:
    if image.dtype != np.uint8:
        raise ValueError(f"pictures are arrays of uint8, not {image.dtype}")
    return image
