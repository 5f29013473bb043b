"""Drops a sink that fails, with one warning, so that the run continues. The JSONL sink is never guarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from reverie.log.recorder import Sink


class GuardedSink:
    """A sink that may fail: full disk, lost server, bug."""

    def __init__(self, name: str, sink: Sink, warn: Callable[[str], None]) -> None:
        self.name = name
        self.sink: Sink | None = sink
        self.warn = warn

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if self.sink is None:
            return
        try:
            self.sink.write(kind, record)
        except Exception as error:
            failed, self.sink = self.sink, None
            self.warn(f"{self.name} failed and was switched off ({describe(error)}). metrics.jsonl is still written.")
            with suppress(Exception):  # the user is warned, and closing may fail for the same reason
                failed.close()

    def close(self) -> None:
        closing, self.sink = self.sink, None
        if closing is None:
            return
        try:
            closing.close()
        except Exception as error:
            self.warn(f"{self.name} could not be closed ({describe(error)}). metrics.jsonl is complete.")


def describe(error: Exception) -> str:
    """The error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
