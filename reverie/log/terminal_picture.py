"""A picture in a terminal: each character is the upper half of a block, so that it shows two pixels."""

from __future__ import annotations

import numpy as np
from PIL import Image
from rich.text import Text

from reverie.core.types import Array

UPPER_HALF = "\u2580"


def draw_picture(picture: Array, columns: int) -> Text:
    """A picture (H, W, 3) as text that is ``columns`` wide, with the picture's proportions."""
    height, width = picture.shape[:2]
    rows = max(1, round(columns * height / width / 2))
    image = Image.fromarray(np.ascontiguousarray(picture)).resize((columns, 2 * rows), Image.Resampling.BOX)
    pixels = np.asarray(image)
    text = Text(no_wrap=True)
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
            text.append(UPPER_HALF, f"rgb({','.join(map(str, above))}) on rgb({','.join(map(str, below))})")
        text.append("\n")
    return text
