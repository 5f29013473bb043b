"""Pictures become frames: sharp, even, with a strip below that hides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.types import Array
from reverie.log.video_frames import ACCENT, BACKGROUND, Canvas, Caption, Strip, VideoError, as_picture, as_return

CAPTION = Caption("return 1.0", "step 1")


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).integers(0, 255, shape, np.uint8)


def test_small_pictures_grow_by_whole_numbers() -> None:
    picture = noise(64, 60, 3)
    frame = Canvas().draw(picture, CAPTION)
    assert frame.shape[1] == 480
    np.testing.assert_array_equal(frame[:512], picture.repeat(8, axis=0).repeat(8, axis=1))


@pytest.mark.parametrize("shape", [(401, 601, 3), (64, 63, 3), (210, 160, 3), (3, 1, 3), (700, 11, 3)])
def test_sides_are_even_and_the_picture_is_whole(shape: tuple[int, int, int]) -> None:
    picture = noise(*shape)
    frame = Canvas("title").draw(picture, CAPTION)
    assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0
    factor = max(1, 512 // max(shape))
    left = (frame.shape[1] - shape[1] * factor) // 2
    inside = frame[: shape[0] * factor : factor, left : left + shape[1] * factor : factor]
    np.testing.assert_array_equal(inside, picture)
    assert frame.shape[0] >= shape[0] * factor + 36
    assert frame.shape[1] >= 320


def test_a_picture_of_another_size_later_fits_the_first() -> None:
    canvas = Canvas()
    first = canvas.draw(noise(100, 100, 3), CAPTION).shape
    assert canvas.draw(noise(50, 70, 3), CAPTION).shape == first


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1), (4, 6, 4)])
def test_other_kinds_of_pictures(shape: tuple[int, ...]) -> None:
    picture = noise(*shape)
    shown = as_picture(picture)
    assert shown.shape == (4, 6, 3)
    first = picture if picture.ndim == 2 else picture[..., 0]
    np.testing.assert_array_equal(shown[..., 0], first)
    assert as_picture(picture.astype(np.float32) * 1.5).dtype == np.uint8


@pytest.mark.parametrize(
    "picture", [None, "text", np.zeros(3), np.zeros((2, 2, 5)), np.zeros((0, 2, 3)), [[1], [2, 3]]]
)
def test_what_is_no_picture_is_refused(picture: Any) -> None:
    with pytest.raises(VideoError, match=r"render\(\) returned"):
        as_picture(picture)


def test_the_strip_shows_text_and_how_far_the_episode_is() -> None:
    strip = Strip(600, "")
    empty, half, full = (np.asarray(strip.draw(Caption("", "", share))) for share in (0.0, 0.5, 1.5))
    assert [(image == ACCENT).all(-1).sum() for image in (empty, half, full)] == [0, 2 * 300, 2 * 600]
    left, right = (np.asarray(strip.draw(Caption(*texts))) for texts in (("return 9", ""), ("", "step 7")))
    assert _ink(left, 0, 200) > 100
    assert _ink(left, 200, 600) == 0
    assert _ink(right, 400, 600) > 100
    assert _ink(right, 0, 400) == 0


def test_the_widest_caption_fits() -> None:
    strip = Strip(320, "")
    left = np.asarray(strip.draw(Caption("return -1,000.0", "")))
    right = np.asarray(strip.draw(Caption("", "step 100,000")))
    assert not ((_is_ink(left).any(0)) & _is_ink(right).any(0)).any()


def test_a_title_is_drawn_where_there_is_room() -> None:
    whole, first_word, none = (
        _ink(np.asarray(Strip(width, title).draw(Caption("", ""))), 0, width)
        for width, title in ((600, "Env-v0 after 10 steps"), (600, "Env-v0 " + 20 * "wide "), (600, 40 * "wide"))
    )
    assert whole > first_word > none == 0


def _is_ink(image: Array) -> Array:
    return (image[4:] != BACKGROUND).any(-1)


def _ink(image: Array, begin: int, end: int) -> int:
    return int(_is_ink(image)[:, begin:end].sum())


def test_returns_for_people() -> None:
    numbers = [0, -0.123, 17.0, 99.999, 500, -1234.56]
    assert [as_return(n) for n in numbers] == ["0.0", "-0.12", "17.0", "100.00", "500.0", "-1,234.6"]
