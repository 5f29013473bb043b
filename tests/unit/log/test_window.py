"""The window, on the screen in memory that SDL offers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from reverie.log.video import ViewerLeft
from reverie.log.window import Window, no_screen, open_window

pygame = pytest.importorskip("pygame")
FRAME = np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8)


@pytest.fixture
def window() -> Iterator[Window]:
    with open_window("title", fps=1000) as opened:
        opened.add(FRAME)
        yield opened


def press(key: str, kind: int) -> None:
    pygame.event.post(pygame.event.Event(kind, key=pygame.key.key_code(key)))


def test_frames_are_shown_as_they_are(window: Window) -> None:
    shown = pygame.surfarray.array3d(pygame.display.get_surface())
    np.testing.assert_array_equal(shown.swapaxes(0, 1), FRAME)
    assert pygame.display.get_caption()[0] == "title"


def test_keys_are_noticed_until_they_are_up(window: Window) -> None:
    press("left", pygame.KEYDOWN)
    press("a", pygame.KEYDOWN)
    press("a", pygame.KEYUP)
    window.add(FRAME)
    assert window.pressed == {"left"}
    assert window.take_tapped() == {"left", "a"}
    assert window.take_tapped() == set()
    press("left", pygame.KEYUP)
    window.wait()
    assert window.pressed == set()


@pytest.mark.parametrize("key", ["q", "escape", None])
def test_the_viewer_may_leave(window: Window, key: str | None) -> None:
    if key is None:
        pygame.event.post(pygame.event.Event(pygame.QUIT))
    else:
        press(key, pygame.KEYDOWN)
    with pytest.raises(ViewerLeft):
        window.listen()


def test_without_a_screen_there_is_something_else_to_do() -> None:
    assert "reverie record <run>" in no_screen("reason").fix
    assert "(reason)" in no_screen("reason").message
