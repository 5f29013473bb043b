"""TensorBoard curves of a run, in ``<run>/tensorboard``.

Rebuilt from the JSONL files at every start: event files cannot be cut back, so after a resume the old ones would show a
doubled stretch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reverie.core.errors import ConfigError
from reverie.log.recorder import Sink
from reverie.log.sinks import KINDS, read_jsonl

NOT_CURVES = ("env_steps", "phase", "time")


class TensorBoardSink:
    """Writes every number of metrics and machine records over env steps, and every episode's return."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        target = folder / "tensorboard"
        shutil.rmtree(target, ignore_errors=True)
        self._writer = EventFileWriter(str(target))
        for kind in KINDS:
            for record in read_jsonl(folder / f"{kind}.jsonl"):
                self.write(kind, record)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ("alerts", "machine_alerts"):
            return
        if kind == "scores":
            values = {"episode/return": record["return"], "episode/length": record["length"]}
        else:
            values = {key: value for key, value in record.items() if key not in NOT_CURVES}
        points = [self._summary.Value(tag=key, simple_value=float(value)) for key, value in values.items()]
        event = self._event(wall_time=time.time(), step=record["env_steps"], summary=self._summary(value=points))
        self._writer.add_event(event)

    def close(self) -> None:
        self._writer.close()


def make_tensorboard_sink(folder: Path) -> Sink:
    """The sink, or how to install what it needs."""
    try:
        return TensorBoardSink(folder)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"log.tensorboard needs a package that is missing: {error.name}.", 'pip install "reverie[tensorboard]"'
        ) from error
