"""Where the words of a run come from: a command, or a Python program. Sources and errors say which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

COMMAND_LINE, PYTHON = "command line", "Python"
TYPED = (COMMAND_LINE, PYTHON)
_typed_in: ContextVar[str] = ContextVar("typed_in", default="")


@contextmanager
def typed_in(place: str) -> Iterator[None]:
    """Say where the words of this block come from. The outermost block decides, as commands call Python functions."""
    token = _typed_in.set(_typed_in.get() or place)
    try:
        yield
    finally:
        _typed_in.reset(token)


def typed_source() -> str:
    """The source of words that somebody gave for this very run."""
    return _typed_in.get() or COMMAND_LINE
