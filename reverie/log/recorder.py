"""Collects metrics and passes records to the sinks.

Kinds of records: ``metrics`` (only what is reproducible), ``scores`` (one per finished episode), ``machine`` (timings
and memory, which differ in every run, and the use of buffers), ``alerts`` (problems found in metrics) and
``machine_alerts`` (problems with memory or time). Update metrics are averaged between two lines. They may be tensors,
which are read only when a line is written. Histograms, videos and figures pass through, see :mod:`reverie.log.media`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from reverie.core.counters import Counters
from reverie.core.types import State
from reverie.machine.usage import Meter

MOST_PENDING = 1000
"""A line is also written once a metric has this many values, as in long phases without env steps."""


class Sink(Protocol):
    """Receives records of all kinds."""

    def write(self, kind: str, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TableSink(Sink, Protocol):
    """Also takes many records of one kind at once, as columns of numbers. Other sinks get them one by one."""

    def write_table(self, kind: str, columns: Mapping[str, Sequence[float]]) -> None: ...


class Recorder:
    """Averages metrics and writes a line every ``every_steps`` env steps."""

    def __init__(
        self,
        counters: Counters,
        every_steps: int,
        sinks: Sequence[Sink] = (),
        device_usage: Callable[[], Mapping[str, float]] = dict,
        action_repeat: int = 1,
    ) -> None:
        self.counters = counters
        self.every_steps = every_steps
        self.sinks = list(sinks)
        self.phase = ""
        self.latest: dict[str, float] = {}
        self.pending: dict[str, list[Any]] = {}
        self.lines = 0
        self.device_usage = device_usage
        self.action_repeat = action_repeat
        self.meter = Meter()
        self._last = self._now()

    def begin_phase(self, name: str) -> None:
        """Write the previous phase's metrics and forget them: ``until`` reads only metrics of its own phase."""
        self.flush()
        self.latest = {}
        self.phase = name

    def add(self, prefix: str, metrics: Mapping[str, Any]) -> None:
        """Add metrics to the averages of the next line."""
        for name, value in metrics.items():
            self.pending.setdefault(f"{prefix}/{name}", []).append(value)

    def add_episodes(self, episodes: Mapping[str, Sequence[float]]) -> None:
        """Record finished episodes of collection, one entry per episode in every column."""
        self._send_table("scores", {"env_steps": [self.counters.env_steps] * len(episodes["return"]), **episodes})
        for key, values in episodes.items():
            if key in ("return", "length") or key.startswith("log/"):
                self.pending.setdefault(f"collect/{key}", []).extend(map(float, values))

    def write_now(self, prefix: str, metrics: Mapping[str, float]) -> None:
        """Write a separate line, for evaluations."""
        named = {f"{prefix}/{name}": float(value) for name, value in metrics.items()}
        self.latest.update(named)
        self._send("metrics", {**self._counts(), **named})

    def alert(self, level: str, rule: str, message: str, kind: str = "alerts") -> None:
        """Send an alert to all sinks."""
        self._send(kind, {**self._position(), "level": level, "rule": rule, "message": message})

    def show(self, kind: str, name: str, **content: Any) -> None:
        """Send a histogram, a video or a figure to all sinks, see :mod:`reverie.log.media`."""
        self._send(kind, {**self._position(), "name": name, **content})

    def end_cycle(self, machine: Mapping[str, float] | None = None) -> None:
        """Write a line if enough env steps have passed or too many values are pending.

        ``machine`` is added to the machine record.
        """
        due = self.counters.env_steps // self.every_steps if self.every_steps else self.lines + 1
        if due > self.lines or any(len(values) >= MOST_PENDING for values in self.pending.values()):
            self.lines = due
            self.flush(machine)

    def flush(self, machine: Mapping[str, float] | None = None) -> None:
        """Write the pending averages."""
        if not self.pending:
            return
        means = {name: float(np.mean([float(v) for v in values])) for name, values in self.pending.items()}
        self.pending = {}
        self.latest.update(means)
        self._send("metrics", {**self._counts(), **means})
        self._send_machine(machine or {})

    def close(self) -> None:
        for sink in reversed(self.sinks):  # JSONL and console come first and may receive warnings of the others
            sink.close()

    def state(self) -> State:
        pending = {name: [float(v) for v in values] for name, values in self.pending.items()}
        return {"latest": dict(self.latest), "pending": pending, "lines": self.lines, "phase": self.phase}

    def load_state(self, state: State) -> None:
        self.latest, self.pending = dict(state["latest"]), {k: list(v) for k, v in state["pending"].items()}
        self.lines, self.phase = state["lines"], state["phase"]
        self._last = self._now()

    def rename(self, current_name: Callable[[str], str]) -> None:
        """Give metrics from the state of an earlier version their current names."""
        self.latest = {current_name(name): value for name, value in self.latest.items()}
        self.pending = {current_name(name): values for name, values in self.pending.items()}

    def _position(self) -> dict[str, int]:
        return {"env_steps": self.counters.env_steps, "updates": self.counters.updates}

    def _counts(self) -> dict[str, Any]:
        counters = self.counters
        frames = counters.env_steps * self.action_repeat
        counts = {"frames": frames, "cycles": counters.cycles, "episodes": counters.episodes}
        return {**self._position(), **counts, **counters.metrics(), "phase": self.phase}

    def _send_machine(self, more: Mapping[str, float]) -> None:
        before, self._last = self._last, self._now()
        seconds, steps, updates = (now - then for now, then in zip(self._last, before, strict=True))
        self._send("machine", {
            **self._position(), "time": time.time(), "speed/env_steps_per_second": steps / max(seconds, 1e-9),
            "speed/updates_per_second": updates / max(seconds, 1e-9),
            **self.meter.read(), **self.device_usage(), **more,
        })  # fmt: skip

    def _now(self) -> tuple[float, int, int]:
        """Seconds, env steps and updates, to compute speeds."""
        return time.perf_counter(), self.counters.env_steps, self.counters.updates

    def _send(self, kind: str, record: Mapping[str, Any]) -> None:
        for sink in self.sinks:
            sink.write(kind, record)

    def _send_table(self, kind: str, columns: Mapping[str, Sequence[float]]) -> None:
        for sink in self.sinks:
            if hasattr(sink, "write_table"):  # isinstance with a protocol takes 15 microseconds
                cast(TableSink, sink).write_table(kind, columns)
            else:
                for values in zip(*columns.values(), strict=True):
                    sink.write(kind, dict(zip(columns, values, strict=True)))
