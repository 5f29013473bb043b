"""Images of open-loop predictions: truth, model and error side by side, one row per env.

The strip between truth and model is green while the model observes, and orange while it imagines.
"""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array
from reverie.log.video_frames import BACKGROUND

GAP = 2
SEEN, DREAMT = (88, 196, 120), (245, 160, 66)


def compare_frames(truth: Array, model: Array, is_dreamt: Array) -> Array:
    """Images (B, T, H, W, C) of both as frames (T, height, width, 3). ``is_dreamt`` (B, T) marks imagined ones."""
    truth, model = as_colours(truth), as_colours(model)
    error = 128 + (model.astype(np.int16) - truth) // 2
    envs, times, height, width = truth.shape[:4]
    frames = np.empty((times, envs * (height + GAP) - GAP, 3 * width + 2 * GAP, 3), np.uint8)
    frames[:] = BACKGROUND
    for env in range(envs):
        top = env * (height + GAP)
        for place, images in enumerate((truth, model, error)):
            left = place * (width + GAP)
            frames[:, top : top + height, left : left + width] = images[env]
        marks = np.where(is_dreamt[env, :, None], DREAMT, SEEN).astype(np.uint8)
        frames[:, top : top + height, width : width + GAP] = marks[:, None, None]
    return frames


def reconstruction_picture(truth: Array, model: Array, columns: int = 12) -> Array:
    """Some of the images (B, T, H, W, C), truth above its reconstruction, as one image (height, width, 3)."""
    times = np.linspace(0, truth.shape[1] - 1, min(columns, truth.shape[1])).astype(int)
    pairs = np.concatenate([truth[:, times], model[:, times]], axis=2)  # (B, columns, 2 H, W, C)
    lines = as_colours(pairs).swapaxes(1, 2)  # (B, 2 H, columns, W, 3)
    return np.ascontiguousarray(lines.reshape(-1, lines.shape[2] * lines.shape[3], 3))


def as_colours(images: Array) -> Array:
    """Images (..., C) as RGB (..., 3). Of a stack of frames, the newest."""
    if images.shape[-1] % 3 == 0:
        return images[..., -3:]
    return np.repeat(images[..., -1:], 3, axis=-1)
