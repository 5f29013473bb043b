"""The loop in which a player acts and envs step. Collecting, evaluating, recording and watching all use it.

```
interaction.restart()
while ...:
    row = interaction.act()             # the row that arrived, with its action and extras
    interaction.step(row["action"])     # the next row arrives
```
The user of the loop decides when it ends and what happens to the rows. Other code steps envs only to test the
envs themselves (snapshots, ``envs check``, smoke test) or where the actions come from outside (``Agent``, keyboard).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from reverie.core.contracts import Controller, Vector
from reverie.core.specs import Specs
from reverie.core.types import ACT_METRICS, Array, Carry, Clock, Mode, Row
from reverie.policy import Policy


class Player(Protocol):
    """Chooses the actions of an interaction."""

    def begin(self, num_envs: int) -> None:
        """New episodes start in all envs."""
        ...

    def act(self, now: Row) -> tuple[Array, Row]:
        """Actions and extras for the rows that arrived (with ``previous_action``)."""
        ...


class PolicyPlayer:
    """A policy with its carry.

    ``clock`` and ``rng`` are called at every act: counters advance while a run collects, and a resume replaces the
    generators.
    """

    def __init__(
        self, policy: Policy, mode: Mode, clock: Callable[[], Clock], rng: Callable[[], np.random.Generator]
    ) -> None:
        self.policy, self.mode, self.clock, self.rng = policy, mode, clock, rng
        self.carry: Carry = {}

    @classmethod
    def at(cls, policy: Policy, mode: Mode, clock: Clock, rng: np.random.Generator) -> PolicyPlayer:
        """A player with a fixed clock: schedules keep one value for all its episodes."""
        return cls(policy, mode, lambda: clock, lambda: rng)

    def begin(self, num_envs: int) -> None:
        self.carry = self.policy.initial_carry(num_envs)

    def act(self, now: Row) -> tuple[Array, Row]:
        action, self.carry, extras = self.policy.act(now, self.carry, self.clock(), self.rng(), self.mode)
        return action, extras


class ControlledPlayer:
    """A controller chooses the actions. The policy only observes, so its carry and extras stay correct."""

    def __init__(self, observer: PolicyPlayer, controller: Controller, rng: Callable[[], np.random.Generator]) -> None:
        self.observer, self.controller, self.rng = observer, controller, rng

    def begin(self, num_envs: int) -> None:
        self.observer.begin(num_envs)

    def act(self, now: Row) -> tuple[Array, Row]:
        _, extras = self.observer.act(now)
        return self.controller.act(now, self.rng()), extras


class RandomPlayer:
    """Uniform random actions."""

    def __init__(self, specs: Specs, rng: np.random.Generator) -> None:
        self.specs, self.rng = specs, rng

    def begin(self, num_envs: int) -> None:
        """Random actions do not depend on the episode."""

    def act(self, now: Row) -> tuple[Array, Row]:
        return self.specs.action.sample(self.rng, len(now["is_first"])), {}


class Interaction:
    """A vector of envs and the player who acts in it."""

    def __init__(self, vector: Vector, player: Player) -> None:
        self.vector, self.player = vector, player
        self.now: Row = {}
        """The rows that arrived last, with ``previous_action``, and ``valid`` while some envs rest."""
        self.act_metrics: Array | None = None
        """Numbers (K,) that the last act reported, by name, for the envs that act."""

    def restart(self) -> Row:
        """Start new episodes in all envs. Returns the rows that arrive."""
        count = self.vector.num_envs
        self.player.begin(count)
        return self._receive(self.vector.reset(), self.vector.specs.action.zeros(count))

    def act(self) -> Row:
        """The rows that arrived last, with their actions and extras."""
        action, extras = self.player.act(self.now)
        self.act_metrics = extras.pop(ACT_METRICS, None)
        return {**self.now, "action": action, **extras}

    def step(self, action: Array, active: Array | None = None) -> Row:
        """Step all envs, or only the ``active`` ones. Returns the rows that arrive."""
        self._receive(self.vector.step(action, active), action)
        if active is not None:
            self.now["valid"] = active
        return self.now

    def _receive(self, row: Row, previous_action: Array) -> Row:
        self.now = {**row, "previous_action": previous_action}
        return self.now
