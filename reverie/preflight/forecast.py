"""Forecasts the memory, disk space and time of a run from its config and the probe's measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reverie.config.hook_checks import has_update
from reverie.config.phases import Hook, Phase, flatten_phases
from reverie.config.schema import RunConfig
from reverie.core.specs import Specs
from reverie.core.types import Row, State
from reverie.data.memory_forecast import ExpectedRows, Forecast, forecast_buffer, known_extras
from reverie.preflight.probe import HookCost, Measured

LOG_BYTES = 1_000_000
"""Approximate size of a run's text files."""


def buffer_bytes(config: RunConfig, specs: Specs, measured: Measured) -> Forecast:
    """The size of all buffers when full. Extras and annotations are those that the probe found."""
    extras: Row = dict(measured.extras or known_extras(config.algorithm))
    extras |= {f"log/{key}": np.zeros(1, np.float32) for key in config.env.log_keys}
    expected = ExpectedRows(specs, config.env.num_envs, extras, measured.annotations)
    found = [
        forecast_buffer(buffer, expected._replace(rollout_rows=_rows_per_cycle(name, config, specs)))
        for name, buffer in config.buffers.items()
    ]
    return Forecast(*(sum(sizes) for sizes in zip(*found, strict=True)))


def _rows_per_cycle(buffer: str, config: RunConfig, specs: Specs) -> int:
    """The most rows collected into a buffer before it is read: in one cycle, or over phases that never read it."""
    longest = (specs.max_episode_steps or 1000) + 1
    most = unread = 0
    for phase in (phase for phase in flatten_phases(config.phases) if phase.buffer == buffer):
        rows = sum(hook.rows or (hook.episodes or 0) * longest for hook in _hooks(phase, "collect"))
        is_read = has_update(phase)
        steps = phase.duration_steps or 0
        unread += rows if is_read or not rows else rows * (phase.duration_cycles or -(-steps // rows) or 1)
        most = max(most, unread)
        unread = 0 if is_read or "buffer" not in phase.keep else unread
    return most


def disk_bytes(config: RunConfig, algorithm: State, policy: State, buffers: Forecast) -> int:
    """Disk space of all checkpoints and policies kept at the same time, plus one being written, and of their rows.

    Checkpoints share their rows, but not annotations (which differ between saves) nor the chunks that still grow.
    """
    kept = config.checkpoint.keep_last + 1
    if config.checkpoint.keep_every_steps:
        kept += config.horizon_steps // config.checkpoint.keep_every_steps
    rows = int(max(buffers.memory - buffers.each_checkpoint, buffers.disk) * (1 + _dropped_fraction(config)))
    each = array_bytes(algorithm) + buffers.each_checkpoint
    return kept * each + (kept + 1) * array_bytes(policy) + rows + LOG_BYTES


def _dropped_fraction(config: RunConfig) -> float:
    """Rows that buffers have dropped but checkpoints still refer to, as a fraction of the buffers' capacity."""
    capacity = min((buffer.capacity for buffer in config.buffers.values() if hasattr(buffer, "capacity")), default=0)
    if not capacity:
        return 0.0
    saved = config.checkpoint
    steps = config.horizon_steps if saved.keep_every_steps else saved.keep_last * saved.every_steps
    return max(0, min(steps, config.horizon_steps - capacity)) / capacity


def array_bytes(tree: Any) -> int:
    """Bytes of all arrays in a state."""
    if isinstance(tree, dict):
        return sum(array_bytes(value) for value in tree.values())
    return int(getattr(tree, "nbytes", 0))


@dataclass(frozen=True)
class Duration:
    """Seconds of a whole run. Evaluation time is an upper bound, because episode lengths are unknown."""

    training: float
    evaluation: float
    env_steps: int

    @property
    def steps_per_second(self) -> float:
        return self.env_steps / max(self.training, 1e-9)


def duration(config: RunConfig, specs: Specs, measured: Measured) -> Duration | None:
    """The run's duration at the measured speed. None if an update was not measured."""
    training = evaluation = 0.0
    for phase in flatten_phases(config.phases):
        cycle = _cycle(phase, config, measured)
        cycles = None if cycle is None else _cycles(phase, cycle)
        if cycle is None or cycles is None:
            return None
        training += cycles * cycle.seconds
        evaluation += sum(_times(hook, cycle, cycles) * (hook.episodes or 1) for hook in _hooks(phase, "evaluate"))
    evaluation += config.evaluate.final_episodes
    longest = (specs.max_episode_steps or 0) * measured.row_seconds
    return Duration(training, evaluation * longest, config.horizon_steps)


@dataclass(frozen=True)
class _Cycle:
    rows: float
    updates: float
    seconds: float


def _cycle(phase: Phase, config: RunConfig, measured: Measured) -> _Cycle | None:
    """Rows, updates and seconds of one cycle. None if one of its updates was not measured."""
    rows = sum(_rows(hook, config, measured) for hook in _hooks(phase, "collect"))
    updates, seconds = 0.0, rows * measured.row_seconds
    for hook in phase.hooks:
        if hook.name in ("collect", "evaluate"):
            continue
        cost = measured.hooks.get(hook.name)
        if cost is None:
            return None
        calls = _calls(hook, cost, rows) / (hook.every_cycles or 1)
        updates += calls * cost.updates
        seconds += calls * cost.seconds
    return _Cycle(rows, updates, seconds)


def _rows(hook: Hook, config: RunConfig, measured: Measured) -> float:
    length = measured.episode_length or 100.0
    return float(hook.rows or 0) or (hook.episodes or 0) * (length + 1) or config.env.num_envs


def _calls(hook: Hook, cost: HookCost, rows: float) -> float:
    """Number of calls of an update hook in a cycle, in units of the measured call."""
    if hook.updates is not None:
        return hook.updates / cost.updates
    if hook.updates_per_step is not None:
        return rows * hook.updates_per_step / cost.updates
    if hook.train_ratio is not None and cost.batch_rows:
        return rows * hook.train_ratio / cost.batch_rows / cost.updates
    return rows / cost.rows if cost.rows else 1.0


def _cycles(phase: Phase, cycle: _Cycle) -> float | None:
    amounts = (
        (phase.duration_steps, cycle.rows), (phase.duration_updates, cycle.updates), (phase.duration_cycles, 1.0),
    )  # fmt: skip
    return next((amount / per_cycle for amount, per_cycle in amounts if amount and per_cycle), None)


def _times(hook: Hook, cycle: _Cycle, cycles: float) -> float:
    """How often a hook with an interval runs in a phase."""
    if hook.every_steps:
        return min(cycles, cycles * cycle.rows / hook.every_steps)
    if hook.every_updates:
        return min(cycles, cycles * cycle.updates / hook.every_updates)
    return cycles / (hook.every_cycles or 1)


def _hooks(phase: Phase, name: str) -> Iterator[Hook]:
    return (hook for hook in phase.hooks if hook.name == name)
