"""Small algorithms that use one contract each, for ``Reverie/Counting-v0`` with discrete actions.

They learn next to nothing. Each is there so that its contract works before a real algorithm needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Rollout, Transitions
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.types import ACT_METRICS, Array, Batch, Carry, Clock, Mode, Row, State, Update


class ToyPlanner:
    """Plans an action for every row, except where a controller chooses."""

    class Config(ComponentConfig):
        """Nothing to set."""

        kind: str = "tests.toys.ToyPlanner"
        """This class."""

    traits = Traits(observes=True)

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
        extras: Row = {"rows": rows}
        if mode is not Mode.OBSERVE:
            self.plans += len(rows)
            action = rng.integers(self.specs.action.classes[0], size=len(rows))
            extras[ACT_METRICS] = rows.astype([("step", np.float32)])
        return action, {"rows": rows}, extras

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


class ToyTwoBuffers(ToyPlanner):
    """Learns dynamics from one buffer and a return model from another, after a look at the data."""

    class Config(ComponentConfig):
        """Sizes of reads."""

        kind: str = "tests.toys.ToyTwoBuffers"
        """This class."""
        batch_size: int = 4
        """Transitions in a batch of update_dynamics."""
        rate: Rate = constant(1.0)
        """Only reported, to see schedules at work."""

    traits = Traits(hooks=("update_dynamics", "update_fitness"), observes=True, prepares=True)

    def __init__(self, config: Config, specs: Specs, rng: np.random.Generator) -> None:
        super().__init__(config, specs, rng)  # type: ignore[arg-type]
        self.prepared: list[int] = []

    @property
    def reads(self) -> Mapping[str, Read]:
        return {"update_dynamics": Transitions(self.config.batch_size), "update_fitness": Rollout()}

    def prepare(self, buffers: Mapping[str, Any]) -> None:
        self.prepared.append(sum(map(len, buffers.values())))

    def update_dynamics(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        return Update({"rows": len(batch["reward"]), "rate": self.config.rate.at(clock)})

    def update_fitness(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        return Update({"columns": batch["reward"].shape[1]}, count=2)

    def state(self) -> State:
        return {"plans": self.plans, "prepared": list(self.prepared)}

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self.prepared = list(state.get("prepared", []))
