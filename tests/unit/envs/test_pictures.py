"""Pictures of envs, contact sheets, and pictures in a terminal."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.envs.pictures import LABEL, TILE, contact_sheet, take_picture
from reverie.log.terminal_picture import UPPER_HALF, draw_picture


def test_a_picture_is_a_frame_of_the_env() -> None:
    picture = take_picture(EnvConfig(id="Reverie/Motion-v0"), steps=3)
    assert picture.shape == (64, 64, 3)
    assert picture.any()
    assert (picture == take_picture(EnvConfig(id="Reverie/Motion-v0"), steps=3)).all()
    with pytest.raises(ConfigError, match="renders no pictures"):
        take_picture(EnvConfig(id="Reverie/Constant-v0"))


def test_a_contact_sheet_shows_every_picture_with_its_colours() -> None:
    red, blue = np.zeros((10, 20, 3), np.uint8), np.zeros((300, 400, 3), np.uint8)
    red[..., 0], blue[..., 2] = 200, 180
    sheet = contact_sheet([("red", red), ("blue", blue), ("again", red)], columns=2)
    assert sheet.size == (2 * TILE, 2 * (TILE + LABEL))
    assert sheet.getpixel((TILE // 2, TILE // 2)) == (200, 0, 0)
    assert sheet.getpixel((TILE + TILE // 2, TILE // 2)) == (0, 0, 180)
    assert sheet.getpixel((TILE // 2, TILE + LABEL + TILE // 2)) == (200, 0, 0)
    assert sheet.getpixel((TILE + TILE // 2, TILE + LABEL + TILE // 2)) == (255, 255, 255)


def test_a_character_shows_two_pixels() -> None:
    picture = np.array([[[255, 0, 0]], [[0, 0, 255]]], np.uint8)
    text = draw_picture(picture, columns=1)
    assert text.plain == f"{UPPER_HALF}\n"
    assert str(text.spans[0].style) == "rgb(255,0,0) on rgb(0,0,255)"
    assert draw_picture(np.zeros((64, 64, 3), np.uint8), columns=32).plain.count("\n") == 16
