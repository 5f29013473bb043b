"""The run's counts. They trigger everything (evaluation, logging, saving); the wall clock triggers nothing.

env step   one action carried out in one env (rows that follow a reset are not steps)
row        one arriving observation of one env, steps and resets alike
update     one optimiser step, as reported by the algorithm
cycle      one pass through a phase's hooks
episode    one finished episode of collection
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from reverie.core.types import Clock, State


@dataclass
class Counters:
    env_steps: int = 0
    rows: int = 0
    updates: int = 0
    cycles: int = 0
    episodes: int = 0
    horizon_steps: int = 0

    def clock(self) -> Clock:
        return Clock(self.env_steps, self.updates, self.cycles, self.horizon_steps)

    def state(self) -> State:
        return asdict(self)

    def load_state(self, state: State) -> None:
        for name, value in state.items():
            setattr(self, name, int(value))
