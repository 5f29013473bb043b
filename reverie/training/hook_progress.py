"""What one hook has done in the current phase, and at which pace.

A rate (updates per env step) and an interval (in env steps, updates or cycles) count from the moment they took effect:
the start of the phase, or the resume that changed them. A changed setting never applies to the past.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reverie.config.phases import Hook
from reverie.core.counters import Counters
from reverie.core.types import State

INTERVALS = {"env_steps": "every_steps", "updates": "every_updates", "cycles": "every_cycles"}
"""The counters that a hook may wait for, and the setting of each."""


class Pace(NamedTuple):
    """How often a hook runs."""

    rate: float = 0.0
    """Updates per env step. 0 for a hook that does not depend on env steps."""
    counter: str = ""
    """The counter that the hook waits for. Empty if it runs in every cycle."""
    every: int = 0
    """Amount of that counter between two runs of the hook."""


@dataclass
class HookProgress:
    """Progress of a hook in the cycle and in the phase."""

    ran: bool = False
    """Whether it ran in this cycle."""
    cycle_updates: int = 0
    """Updates in this cycle."""
    cycle_calls: int = 0
    """Calls in this cycle, of a hook with epochs."""
    epoch_calls: int = 0
    """Calls that the hook's epochs need in this cycle. Known after the first call."""
    rate: float = 0.0
    rate_start: int = 0
    """Env step at which the rate took effect."""
    rate_updates: int = 0
    """Updates since then."""
    carried: float = 0.0
    """Updates that were due when the rate took effect. Negative if too many had been done."""
    counter: str = ""
    every: int = 0
    interval_start: int = 0
    """Value of the counter from which intervals are counted."""
    intervals: int = 0
    """Intervals that had passed when the hook last ran."""

    @classmethod
    def starting_at(cls, pace: Pace, start: Counters) -> HookProgress:
        """No progress yet. Everything counts from ``start``."""
        return cls(
            rate=pace.rate, rate_start=start.env_steps,
            counter=pace.counter, every=pace.every, interval_start=_value(start, pace.counter),
        )  # fmt: skip

    def count(self, updates: int, counters: Counters, epoch_calls: int = 0) -> None:
        """The hook was called once and made ``updates`` updates."""
        self.ran = True
        self.cycle_updates += updates
        if epoch_calls:
            self.cycle_calls, self.epoch_calls = self.cycle_calls + 1, epoch_calls
        self.rate_updates += updates
        self.intervals = self._passed(counters)

    def state(self) -> State:
        """Leaves out epoch counts that are 0, as in checkpoints from before epochs existed."""
        values = dict(vars(self))
        return {key: value for key, value in values.items() if value or key not in ("cycle_calls", "epoch_calls")}

    def end_cycle(self) -> None:
        self.ran = False
        self.cycle_updates = self.cycle_calls = self.epoch_calls = 0

    def owed(self, counters: Counters) -> int:
        """Updates that are due by the rate and not done yet."""
        return int(self.carried + (counters.env_steps - self.rate_start) * self.rate) - self.rate_updates

    def waits(self, counters: Counters) -> bool:
        """Whether no interval has passed since the hook last ran."""
        return self.every > 0 and self._passed(counters) <= self.intervals

    def change_pace(self, pace: Pace, counters: Counters) -> None:
        """Apply changed settings from now on. Unchanged ones keep counting."""
        if pace.rate != self.rate:
            owed = self.carried + (counters.env_steps - self.rate_start) * self.rate - self.rate_updates
            self.carried = owed if pace.rate and self.rate else 0.0
            self.rate, self.rate_start, self.rate_updates = pace.rate, counters.env_steps, 0
        if (pace.counter, pace.every) != (self.counter, self.every):
            last = self.interval_start + self.intervals * self.every
            self.interval_start = last if pace.counter == self.counter else _value(counters, pace.counter)
            self.counter, self.every, self.intervals = pace.counter, pace.every, 0

    def _passed(self, counters: Counters) -> int:
        """Intervals since ``interval_start``. The current cycle counts as a whole one."""
        if not self.every:
            return 0
        current_cycle = int(self.counter == "cycles")
        return (_value(counters, self.counter) - self.interval_start + current_cycle) // self.every


def interval_of(hook: Hook) -> tuple[str, int]:
    """The counter that a hook waits for, and the amount between two runs. ("", 0) if it does not wait."""
    found = ((counter, getattr(hook, setting)) for counter, setting in INTERVALS.items())
    return next(((counter, every) for counter, every in found if every), ("", 0))


def hook_keys(hooks: Iterable[Hook]) -> list[str]:
    """A key for each hook of a phase: its name, with a number if the name repeats (update, update_2)."""
    keys: list[str] = []
    for hook in hooks:
        key, number = hook.name, 1
        while key in keys:
            number += 1
            key = f"{hook.name}_{number}"
        keys.append(key)
    return keys


def _value(counters: Counters, name: str) -> int:
    return int(getattr(counters, name)) if name else 0
