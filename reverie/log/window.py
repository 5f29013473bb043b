"""A window that shows frames and reads keys. It uses pygame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.log.video import ViewerLeft

LEAVING = ("escape", "q")
IDLE_FPS = 60


class Window:
    """Shows frames at a fixed rate. Escape, q and the close button raise ViewerLeft."""

    def __init__(self, title: str, fps: float) -> None:
        self.title = title
        self.fps = fps
        self.pressed: set[str] = set()
        """Names of the keys that are down now."""
        self.tapped: set[str] = set()
        """Names of the keys pressed since the last :meth:`take_tapped`, even if released by now."""
        self._pygame = _import_pygame()
        self._clock = self._pygame.time.Clock()
        self._screen: Any = None

    def add(self, frame: Array) -> None:
        if self._screen is None:
            self._open(frame.shape[1], frame.shape[0])
        self._screen.blit(self._pygame.surfarray.make_surface(np.swapaxes(frame, 0, 1)), (0, 0))
        self._pygame.display.flip()
        self._clock.tick(self.fps)
        self.listen()

    def listen(self) -> None:
        """Process keyboard and window events."""
        pygame = self._pygame
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise ViewerLeft
            if event.type not in (pygame.KEYDOWN, pygame.KEYUP):
                continue
            name = pygame.key.name(event.key)
            if name in LEAVING:
                raise ViewerLeft
            if event.type == pygame.KEYDOWN:
                self.pressed.add(name)
                self.tapped.add(name)
            else:
                self.pressed.discard(name)

    def take_tapped(self) -> set[str]:
        """The keys pressed since the last call."""
        tapped, self.tapped = self.tapped, set()
        return tapped

    def wait(self) -> None:
        """Wait for one tick of the idle clock."""
        self._clock.tick(IDLE_FPS)
        self.listen()

    def close(self) -> None:
        self._pygame.display.quit()

    def _open(self, width: int, height: int) -> None:
        try:
            self._pygame.display.init()
            self._screen = self._pygame.display.set_mode((width, height))
        except self._pygame.error as error:
            raise no_screen(str(error)) from error
        self._pygame.display.set_caption(self.title)


@contextmanager
def open_window(title: str, fps: float) -> Iterator[Window]:
    window = Window(title, fps)
    try:
        yield window
    finally:
        window.close()


def no_screen(reason: str = "") -> ConfigError:
    """The error for machines where no window can be opened."""
    return ConfigError(
        f"No window can be opened: there is no screen{f' ({reason})' if reason else ''}.",
        "Over ssh, connect with ssh -X. To write a file instead: reverie play --random <env> --gif, "
        "or reverie record <run>.",
    )


def _import_pygame() -> Any:
    import os

    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import pygame

    return pygame
