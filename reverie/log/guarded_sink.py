"""Keeps a sink that fails from harming the run: it is dropped, with one warning. The JSONL sink is never guarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from reverie.log.recorder import Sink


class GuardedSink:
    """A sink that may fail: a full disk, a server that is gone, a bug."""

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
            self.warn(f"{self.name} failed and is dropped ({describe(error)}); metrics.jsonl goes on")
            with suppress(Exception):  # the warning is given, and it may well fail for the same reason
                failed.close()

    def close(self) -> None:
        closing, self.sink = self.sink, None
        if closing is None:
            return
        try:
            closing.close()
        except Exception as error:
            self.warn(f"{self.name} could not be closed ({describe(error)}); metrics.jsonl is complete")


def describe(error: Exception) -> str:
    """An error in one short line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
