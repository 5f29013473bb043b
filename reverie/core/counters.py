"""The counters of a run. Evaluation, logging and saving are triggered by them, never by the wall clock.

env step   one action in one env (rows that start an episode are not steps)
row        one arriving observation of one env, first rows included
update     one gradient step, as reported by the algorithm
cycle      one pass through a phase's hooks
episode    one finished episode of collection
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from reverie.core.types import Clock, State
from reverie.core.wording import count


@dataclass(frozen=True)
class Budget:
    """The counter that a run's progress is shown in, and its planned total (0: unknown)."""

    counter: str = "env_steps"
    """``updates`` for offline runs."""
    total: int = 0

    @property
    def unit(self) -> str:
        """The counter as people write it."""
        return self.counter.replace("_", " ")

    def position(self, number: int) -> str:
        """A point of the run as text: env step 5,000."""
        return f"{self.unit.removesuffix('s')} {number:,}"

    def amount(self, number: int) -> str:
        """An amount as text: 5,000 env steps."""
        return count(number, self.unit.removesuffix("s"))


@dataclass
class Counters:
    env_steps: int = 0
    rows: int = 0
    updates: int = 0
    cycles: int = 0
    episodes: int = 0
    horizon_steps: int = 0
    hook_updates: dict[str, int] = field(default_factory=dict)
    """Updates of each hook, by its name. Saved as ``updates/<hook>``; checkpoints of older versions have none."""

    @classmethod
    def saved_in(cls, values: Mapping[str, Any]) -> Counters:
        """The counters among the values of a saved policy or checkpoint. Missing ones are 0."""
        return cls(**{name: int(values.get(name, 0)) for name in _NUMBERS}, hook_updates=_hooks_in(values))

    def progress(self, budget: Budget) -> int:
        """How far a run with this budget has come."""
        return int(getattr(self, budget.counter))

    def clock(self) -> Clock:
        """This moment, for schedules and exploration. Only this method makes clocks, so none lacks a counter."""
        return Clock(self.env_steps, self.updates, self.cycles, self.horizon_steps)

    def count_updates(self, hook: str, number: int) -> None:
        self.updates += number
        self.hook_updates[hook] = self.hook_updates.get(hook, 0) + number

    def metrics(self) -> dict[str, int]:
        """Updates by hook, for runs that use several. Empty with one hook, as ``updates`` has the same number."""
        return self._named_hooks() if len(self.hook_updates) > 1 else {}

    def state(self) -> State:
        return {**{name: getattr(self, name) for name in _NUMBERS}, **self._named_hooks()}

    def load_state(self, state: State) -> None:
        for name in _NUMBERS:
            if name in state:
                setattr(self, name, int(state[name]))
        self.hook_updates = _hooks_in(state)

    def _named_hooks(self) -> dict[str, int]:
        return {f"{_BY_HOOK}{hook}": number for hook, number in self.hook_updates.items()}


_BY_HOOK = "updates/"
_NUMBERS = tuple(field.name for field in fields(Counters) if field.name != "hook_updates")


def _hooks_in(values: Mapping[str, Any]) -> dict[str, int]:
    return {name.removeprefix(_BY_HOOK): int(values[name]) for name in values if name.startswith(_BY_HOOK)}
