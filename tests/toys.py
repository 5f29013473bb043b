"""Small algorithms that use one contract each, for ``Reverie/Counting-v0`` with discrete actions.

They learn next to nothing. Each is there so that its contract works before a real algorithm needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.reads import Read, Rollout
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update


class ToyPlanner:
    """Plans an action for every row, except where a controller chooses."""

    class Config(ComponentConfig):
        """Nothing to set."""

        kind: str = "tests.toys.ToyPlanner"
        """This class."""

    hooks: tuple[str, ...] = ("update",)
    observes = True

    def __init__(self, config: Config, specs: Specs, rng: np.random.Generator) -> None:
        self.config: Any = config
        self.specs = specs
        self.plans = 0

    @property
    def reads(self) -> Mapping[str, Read]:
        return {"update": Rollout()}

    def initial_carry(self, num_envs: int) -> Carry:
        return {"rows": np.zeros(num_envs, np.int64)}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        rows = np.where(now["is_first"], 1, np.asarray(carry["rows"]) + 1)
        action = self.specs.action.zeros(len(rows))
        if mode is not Mode.OBSERVE:
            self.plans += len(rows)
            action = rng.integers(self.specs.action.classes[0], size=len(rows))
        return action, {"rows": rows}, {"rows": rows}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        return Update({"plans": self.plans})

    def state(self) -> State:
        return {"plans": self.plans}

    def load_state(self, state: State) -> None:
        self.plans = int(state["plans"])

    def policy_state(self) -> State:
        return self.state()

    def load_policy_state(self, state: State) -> None:
        self.load_state(state)
