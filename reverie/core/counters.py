"""The run's counts. They trigger everything (evaluation, logging, saving); the wall clock triggers nothing.

env step   one action carried out in one env (rows that follow a reset are not steps)
row        one arriving observation of one env, steps and resets alike
update     one optimiser step, as reported by the algorithm
cycle      one pass through a phase's hooks
episode    one finished episode of collection
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from reverie.core.types import Clock, State
from reverie.core.wording import count


@dataclass(frozen=True)
class Budget:
    """What a run is counted in, and how much of it there is to do; 0 if that is open."""

    counter: str = "env_steps"
    """Or ``updates``, where a run learns from data without taking a step."""
    total: int = 0

    @property
    def unit(self) -> str:
        """As people write it."""
        return self.counter.replace("_", " ")

    def place(self, number: int) -> str:
        return f"{self.unit.removesuffix('s')} {number:,}"

    def amount(self, number: int) -> str:
        return count(number, self.unit.removesuffix("s"))


@dataclass
class Counters:
    env_steps: int = 0
    rows: int = 0
    updates: int = 0
    cycles: int = 0
    episodes: int = 0
    horizon_steps: int = 0

    @classmethod
    def saved_in(cls, values: Mapping[str, Any]) -> Counters:
        """The counters among the values of a saved policy or checkpoint; those that it does not have are 0."""
        return cls(**{field.name: int(values.get(field.name, 0)) for field in fields(cls)})

    def progress(self, budget: Budget) -> int:
        """How far a run with this budget has come."""
        return int(getattr(self, budget.counter))

    def clock(self) -> Clock:
        """This moment, for schedules and exploration. No other place makes a Clock, so that none forgets a counter."""
        return Clock(self.env_steps, self.updates, self.cycles, self.horizon_steps)

    def state(self) -> State:
        return asdict(self)

    def load_state(self, state: State) -> None:
        for name, value in state.items():
            setattr(self, name, int(value))
