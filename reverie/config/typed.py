"""Whether settings were typed on the command line or come from a Python program. Sources and errors name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

COMMAND_LINE, PYTHON = "command line", "Python"
TYPED = (COMMAND_LINE, PYTHON)
_typed_in: ContextVar[str] = ContextVar("typed_in", default="")


@contextmanager
def typed_in(place: str) -> Iterator[None]:
    """Name the origin of settings in this block. The outermost block counts, because commands call Python functions."""
    token = _typed_in.set(_typed_in.get() or place)
    try:
        yield
    finally:
        _typed_in.reset(token)


def typed_source() -> str:
    """The source of words that the user typed for this run."""
    return _typed_in.get() or COMMAND_LINE
