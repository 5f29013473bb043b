"""Pictures of an env as frames of a video: one size, and a strip below that tells how the episode goes.

Small pictures are enlarged by whole numbers, so that every pixel of the env stays a sharp square. The strip lies below
the picture and hides nothing. Both sides are even, as H.264 needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from reverie.core.errors import ReverieError
from reverie.core.types import Array

LONG_SIDE = 512
"""Pictures are enlarged as long as neither side becomes longer than this."""
LEAST_WIDTH = 320
"""Narrower pictures stand in the middle of a frame of this width, so that the strip can be read."""
BACKGROUND, TRACK, ACCENT = (17, 19, 26), (44, 48, 60), (94, 173, 255)
BRIGHT, DIM = (242, 244, 248), (150, 157, 172)


class VideoError(ReverieError):
    """A video cannot be made; training never fails by it."""


@dataclass(frozen=True)
class Caption:
    """What the strip says: two texts, and which share of the longest possible episode is over."""

    left: str
    right: str
    share: float = 0.0


class Canvas:
    """Turns the pictures of one env into frames; the first picture decides their size."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._size: tuple[int, int] | None = None

    def draw(self, picture: Any, caption: Caption) -> Array:
        """A frame (H, W, 3) of uint8, in memory of its own."""
        image = Image.fromarray(as_picture(picture))
        if self._size is None:
            factor = max(1, LONG_SIDE // max(image.size))
            self._size = (image.width * factor, image.height * factor)
        if image.size != self._size:
            image = image.resize(self._size, Image.Resampling.NEAREST)
        width, height = _even(max(LEAST_WIDTH, image.width)), _even(image.height)
        strip = draw_strip(width, caption, self.title)
        frame = np.empty((height + strip.shape[0], width, 3), np.uint8)
        frame[:height] = BACKGROUND
        left = (width - image.width) // 2
        frame[: image.height, left : left + image.width] = image
        frame[height:] = strip
        return frame


def as_picture(picture: Any) -> Array:
    """What ``render()`` gave as (H, W, 3) of uint8; VideoError if it is no picture."""
    array = np.asarray(picture)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size or array.dtype == object:
        what = f"an array of shape {array.shape}" if isinstance(picture, np.ndarray) else repr(type(picture).__name__)
        raise VideoError(f"render() gave {what} instead of a picture.", "It should be (height, width, 3) of uint8.")
    if array.dtype != np.uint8:
        array = np.clip(array, 0, 255).astype(np.uint8)
    array = np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[..., :3]
    return np.ascontiguousarray(array)


def draw_strip(width: int, caption: Caption, title: str) -> Array:
    """The strip below the picture: how far the episode is as a line, the return, a title, the step."""
    height = _even(max(36, width // 13))
    image = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(image)
    line = max(2, height // 16)
    draw.rectangle((0, 0, width, line - 1), fill=TRACK)
    if caption.share > 0:
        draw.rectangle((0, 0, round(min(1.0, caption.share) * width) - 1, line - 1), fill=ACCENT)
    font, margin, middle = _font(round(height * 0.42)), height // 3, (height + line) / 2
    draw.text((margin, middle), caption.left, BRIGHT, font, anchor="lm")
    draw.text((width - margin, middle), caption.right, DIM, font, anchor="rm")
    sides = max(draw.textlength(text, font) for text in (caption.left, caption.right))
    if title and draw.textlength(title, font) + 2 * (sides + 2 * margin) <= width:
        draw.text((width / 2, middle), title, DIM, font, anchor="mm")
    return np.asarray(image)


def as_return(total: float) -> str:
    """A return for people: two digits behind the point where they matter."""
    return f"{total:,.2f}" if abs(total) < 100 and not float(total).is_integer() else f"{total:,.1f}"


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _even(number: int) -> int:
    return number + number % 2
