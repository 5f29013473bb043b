"""What one hook of the current phase has done, and the settings by which that was counted.

A rate (updates per env step) and an interval (every so many env steps, updates or cycles) are counted from where they
took effect: the start of the phase, or the resume that changed them. So a changed setting holds from then on and not
for what lies behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reverie.config.phases import Hook
from reverie.core.counters import Counters
from reverie.core.types import State

INTERVALS = {"env_steps": "every_steps", "updates": "every_updates", "cycles": "every_cycles"}
"""The counters that a hook may wait for, and the setting that says so."""


class Pace(NamedTuple):
    """How often a hook runs."""

    rate: float = 0.0
    """Updates per env step; 0 for a hook that does not go by env steps."""
    counter: str = ""
    """What the hook waits for; nothing if it runs in every cycle."""
    every: int = 0
    """How much of that counter has to pass."""


@dataclass
class HookProgress:
    """Where a hook stands in the cycle and in the phase."""

    ran: bool = False
    """Whether it ran in this cycle."""
    cycle_updates: int = 0
    """Updates in this cycle."""
    cycle_calls: int = 0
    """Calls in this cycle, of a hook with epochs."""
    epoch_calls: int = 0
    """Calls that the hook's epochs need in this cycle; known once it has been called."""
    rate: float = 0.0
    rate_start: int = 0
    """Env step at which the rate took effect."""
    rate_updates: int = 0
    """Updates since then."""
    carried: float = 0.0
    """Updates that were owed when the rate took effect; below 0 if more were done than owed."""
    counter: str = ""
    every: int = 0
    interval_start: int = 0
    """Value of the counter from which intervals are counted."""
    intervals: int = 0
    """Intervals that had passed when the hook last ran."""

    @classmethod
    def starting_at(cls, pace: Pace, start: Counters) -> HookProgress:
        """Nothing done yet; everything is counted from ``start``."""
        return cls(
            rate=pace.rate, rate_start=start.env_steps,
            counter=pace.counter, every=pace.every, interval_start=_value(start, pace.counter),
        )  # fmt: skip

    def count(self, updates: int, counters: Counters, epoch_calls: int = 0) -> None:
        """The hook was called once more and made so many updates."""
        self.ran = True
        self.cycle_updates += updates
        if epoch_calls:
            self.cycle_calls, self.epoch_calls = self.cycle_calls + 1, epoch_calls
        self.rate_updates += updates
        self.intervals = self._passed(counters)

    def state(self) -> State:
        """Without the counts of epochs where there are none, as in checkpoints from before epochs existed."""
        values = dict(vars(self))
        return {key: value for key, value in values.items() if value or key not in ("cycle_calls", "epoch_calls")}

    def end_cycle(self) -> None:
        self.ran = False
        self.cycle_updates = self.cycle_calls = self.epoch_calls = 0

    def owed(self, counters: Counters) -> int:
        """Updates that the rate still asks for."""
        return int(self.carried + (counters.env_steps - self.rate_start) * self.rate) - self.rate_updates

    def waits(self, counters: Counters) -> bool:
        """Whether no interval has passed since the hook last ran."""
        return self.every > 0 and self._passed(counters) <= self.intervals

    def change_pace(self, pace: Pace, counters: Counters) -> None:
        """Let other settings hold from now on; unchanged ones go on as they were."""
        if pace.rate != self.rate:
            owed = self.carried + (counters.env_steps - self.rate_start) * self.rate - self.rate_updates
            self.carried = owed if pace.rate and self.rate else 0.0
            self.rate, self.rate_start, self.rate_updates = pace.rate, counters.env_steps, 0
        if (pace.counter, pace.every) != (self.counter, self.every):
            last = self.interval_start + self.intervals * self.every
            self.interval_start = last if pace.counter == self.counter else _value(counters, pace.counter)
            self.counter, self.every, self.intervals = pace.counter, pace.every, 0

    def _passed(self, counters: Counters) -> int:
        """Intervals since ``interval_start``. The cycle that is under way counts as one."""
        if not self.every:
            return 0
        is_under_way = self.counter == "cycles"
        return (_value(counters, self.counter) - self.interval_start + is_under_way) // self.every


def interval_of(hook: Hook) -> tuple[str, int]:
    """The counter that a hook waits for and how much of it has to pass; nothing if it does not wait."""
    found = ((counter, getattr(hook, setting)) for counter, setting in INTERVALS.items())
    return next(((counter, every) for counter, every in found if every), ("", 0))


def hook_keys(hooks: Iterable[Hook]) -> list[str]:
    """A name for each hook of a phase; the second of two equal ones gets a number: update, update_2."""
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
