"""Turns an env's images into video frames of one size, with a caption below that shows the episode's progress.

Small images are enlarged by whole numbers, so that every pixel stays a sharp square. Width and height of a frame are
even, as H.264 requires.
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
"""Images are enlarged as long as neither side becomes longer than this."""
LEAST_WIDTH = 320
"""Narrower images are centred in a frame of this width, so that the caption is readable."""
WIDE_TEXT = "return -1,000.0"
"""The title, or its first word, is drawn only if a text as wide as this fits on both sides of it."""
BACKGROUND, TRACK, ACCENT = (17, 19, 26), (44, 48, 60), (94, 173, 255)
BRIGHT, DIM = (242, 244, 248), (150, 157, 172)


class VideoError(ReverieError):
    """A video cannot be made. Training continues without it."""


@dataclass(frozen=True)
class Caption:
    """Two texts, and the fraction of the episode's time limit that has passed."""

    left: str
    right: str
    progress: float = 0.0


class Canvas:
    """Turns the images of one env into frames. The first image decides their size."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._frame = np.empty((0, 0, 3), np.uint8)
        self._inside = self._frame
        self._strip = Strip(LEAST_WIDTH, "")

    def draw(self, picture: Any, caption: Caption) -> Array:
        """A frame (H, W, 3) of uint8. The next call overwrites it."""
        array = as_picture(picture)
        if not self._frame.size:
            self._prepare(array.shape[0], array.shape[1])
        if array.shape != self._inside.shape:
            size = (self._inside.shape[1], self._inside.shape[0])
            array = np.asarray(Image.fromarray(np.ascontiguousarray(array)).resize(size, Image.Resampling.NEAREST))
        self._inside[:] = array
        self._frame[-self._strip.height :] = np.asarray(self._strip.draw(caption))
        return self._frame

    def _prepare(self, height: int, width: int) -> None:
        factor = max(1, LONG_SIDE // max(height, width))
        height, width = height * factor, width * factor
        whole = _even(max(LEAST_WIDTH, width))
        self._strip = Strip(whole, self.title)
        self._frame = np.empty((_even(height) + self._strip.height, whole, 3), np.uint8)
        self._frame[:] = BACKGROUND
        left = (whole - width) // 2
        self._inside = self._frame[:height, left : left + width]


class Strip:
    """The strip below the image: a progress line, the return, a title and the step."""

    def __init__(self, width: int, title: str) -> None:
        self.width, self.height = width, _even(max(36, width // 13))
        self._line = max(2, self.height // 16)
        self._margin, self._middle = self.height // 3, (self.height + self._line) / 2
        self._font = _font(round(self.height * 0.42))
        self._empty = Image.new("RGB", (width, self.height), BACKGROUND)
        draw = ImageDraw.Draw(self._empty)
        draw.rectangle((0, 0, width, self._line - 1), fill=TRACK)
        room = width - 2 * (draw.textlength(WIDE_TEXT, self._font) + 2 * self._margin)
        fitting = [text for text in (title, title.partition(" ")[0]) if draw.textlength(text, self._font) <= room]
        if fitting:
            draw.text((width / 2, self._middle), fitting[0].rstrip(","), DIM, self._font, anchor="mm")

    def draw(self, caption: Caption) -> Image.Image:
        image = self._empty.copy()
        draw = ImageDraw.Draw(image)
        done = round(min(1.0, caption.progress) * self.width)
        if done:
            draw.rectangle((0, 0, done - 1, self._line - 1), fill=ACCENT)
        draw.text((self._margin, self._middle), caption.left, BRIGHT, self._font, anchor="lm")
        draw.text((self.width - self._margin, self._middle), caption.right, DIM, self._font, anchor="rm")
        return image


def as_picture(picture: Any) -> Array:
    """The result of ``render()`` as (H, W, 3) of uint8. VideoError if it is not an image."""
    array: Array = picture if isinstance(picture, np.ndarray) else np.zeros(0)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size or array.dtype == object:
        what = f"an array of shape {array.shape}" if isinstance(picture, np.ndarray) else repr(type(picture).__name__)
        raise VideoError(
            f"render() returned {what} instead of an image.", "Return an array (height, width, 3) of uint8."
        )
    if array.dtype != np.uint8:
        array = np.clip(array, 0, 255).astype(np.uint8)
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[..., :3]


def as_return(total: float) -> str:
    """A return as text, with two decimals where they matter."""
    return f"{total:,.2f}" if abs(total) < 100 and not float(total).is_integer() else f"{total:,.1f}"


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _even(number: int) -> int:
    return number + number % 2
