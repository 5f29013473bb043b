"""Tabular learning: Q-learning (Watkins 1989), SARSA and expected SARSA; with one state, bandits.

For observations made of Discrete spaces (also Tuple and Dict of them), which become one index. A table of visits goes
with the table of values: for step sizes of one over the visits, UCB and Thompson sampling.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from reverie.agents.exploration import EpsilonGreedy
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Read, Rollout
from reverie.core.schedule import Schedule, Share, constant
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update, observation_keys
from reverie.data.rows import transitions

MAX_STATES = 10_000_000


class QLearningConfig(ComponentConfig):
    """Tabular learning."""

    built_once = frozenset({"initial_value"})

    kind: str = "qlearning"
    target: Literal["q", "sarsa", "expected_sarsa"] = "q"
    """What a state reached is worth: its best action, the action really taken, or the mean over the policy."""
    learning_rate: Share | Literal["average"] = constant(0.1)
    """Step size; ``average`` is one over the visits, which gives the mean of all targets."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth; 0 for bandits."""
    initial_value: float = 0.0
    """Value of everything not yet tried; high ones make the agent try everything."""
    exploration: Annotated[ComponentConfig, Component("exploration")] = EpsilonGreedy.Config()
    """How actions are chosen in collection."""


class QLearning:
    """An agent with a table."""

    Config = QLearningConfig
    traits = Traits(actions=("discrete",))

    def __init__(self, config: QLearningConfig, specs: Specs, rng: np.random.Generator) -> None:
        self.config = config
        self.specs = specs
        self.reads: dict[str, Read] = {"update": Rollout()}
        self.sizes = _table_sizes(specs)
        shape = (int(np.prod(self.sizes)), specs.action.size)
        self.values: Array = np.full(shape, config.initial_value)
        self.visits: Array = np.zeros(shape, np.int64)
        self.pending: Row = {}
        self.exploration = registry.load("exploration", config.exploration.kind)(config.exploration)
        if config.target == "expected_sarsa" and not hasattr(self.exploration, "probabilities"):
            raise ConfigError(
                f"Expected SARSA needs the chances of all actions, which '{config.exploration.kind}' cannot tell.",
                "Set algorithm.exploration.kind=epsilon or softmax, or algorithm.target=q or sarsa.",
            )
        self.counts_wins = getattr(self.exploration, "counts_wins", False)
        if self.counts_wins and config.learning_rate != "average":
            raise ConfigError(
                "Beliefs about chances count wins, which only the mean of all rewards tells.",
                "Set algorithm.learning_rate=average, or algorithm.exploration.rewards=gaussian.",
            )

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        states = self._states(now)
        if mode is Mode.EVALUATE:
            return self.values[states].argmax(-1), carry, {}
        return self.exploration.choose(self.values[states], self.visits[states], clock, rng), carry, {}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Learn from the transitions of a rollout (N, T + 1), one moment after the other."""
        rows = self._with_pending(batch)
        states, real = self._states(rows), transitions(rows).weight > 0
        # The action after the last row is not known yet; SARSA learns that transition with the next rollout.
        last = real.shape[1] - (self.config.target == "sarsa")
        errors = []
        for t in range(last):
            moment = {
                "state": states[:, t], "action": rows["action"][:, t], "reward": rows["reward"][:, t + 1],
                "terminated": rows["terminated"][:, t + 1], "reached": states[:, t + 1],
                "following": rows["action"][:, t + 1],
            }  # fmt: skip
            errors.append(self._learn({key: value[real[:, t]] for key, value in moment.items()}, clock))
        if self.config.target == "sarsa":
            self.pending = {key: np.asarray(value[:, -2:-1]).copy() for key, value in rows.items()}
        sizes = np.concatenate([*errors, np.zeros(0)])
        return Update({"loss": float(sizes.mean()) if len(sizes) else 0.0, "visited": float((self.visits > 0).mean())})

    def _learn(self, moment: Row, clock: Clock) -> Array:
        """One moment of all envs; the size of the errors."""
        place = (moment["state"], moment["action"])
        worth = self._worth(moment["reached"], moment["following"], clock)
        target = moment["reward"] + self.config.gamma * ~moment["terminated"] * worth
        if self.counts_wins:
            _check_chances(target)
        error = target - self.values[place]
        np.add.at(self.visits, place, 1)
        np.add.at(self.values, place, self._step_size(place, clock) * error)
        return np.abs(error)

    def _step_size(self, place: tuple[Array, Array], clock: Clock) -> Array:
        """Per env. Those that meet in one place step together as far as one after the other: a plain sum of their
        steps would overshoot."""
        rate = self.config.learning_rate
        if not isinstance(rate, Schedule):
            return 1 / self.visits[place]
        index = np.ravel_multi_index(place, self.values.shape)
        together = (index[:, None] == index).sum(1)
        step: Array = (1 - (1 - rate.at(clock)) ** together) / together
        return step

    def _worth(self, state: Array, action: Array, clock: Clock) -> Array:
        values = self.values[state]
        if self.config.target == "q":
            return values.max(-1)
        if self.config.target == "sarsa":
            return self.values[state, action]
        mean: Array = (self.exploration.probabilities(values, clock) * values).sum(-1)
        return mean

    def _with_pending(self, batch: Batch) -> Row:
        rows = {key: np.asarray(value) for key, value in batch.items()}
        rows.setdefault("valid", np.ones_like(rows["is_first"]))  # only some rollouts have it, and all must fit
        if not self.pending:
            return rows
        return {key: np.concatenate([self.pending[key], value], axis=1) for key, value in rows.items()}

    def _states(self, row: Batch) -> Array:
        """One index per row for all its discrete observations."""
        leading = np.asarray(row["is_first"]).shape
        parts = [np.asarray(row[key]).reshape(*leading, -1) for key in observation_keys(row)]
        index: Array = np.ravel_multi_index(tuple(np.moveaxis(np.concatenate(parts, -1), -1, 0)), self.sizes)
        return index

    # ---------------------------------------------------------------- memory

    def policy_state(self) -> State:
        return {"values": self.values.copy(), "visits": self.visits.copy()}

    def load_policy_state(self, state: State) -> None:
        self.values, self.visits = state["values"].copy(), state["visits"].copy()

    def state(self) -> State:
        return {**self.policy_state(), "pending": dict(self.pending)}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.pending = dict(state["pending"])


def _check_chances(targets: Array) -> None:
    outside = targets[(targets < 0) | (targets > 1)]
    if len(outside):
        raise TrainingError(
            f"Beliefs about chances need returns between 0 and 1; there was one of {outside[0]:.3g}.",
            "Set algorithm.exploration.rewards=gaussian.",
        )


def _table_sizes(specs: Specs) -> tuple[int, ...]:
    sizes = tuple(size for spec in specs.observations.values() for size in spec.classes)
    if any(spec.kind != "discrete" for spec in specs.observations.values()):
        raise ConfigError("A table needs discrete observations; this env shows numbers or images.", "Try dqn or ppo.")
    if np.prod(sizes, dtype=float) > MAX_STATES:
        raise ConfigError(f"A table of {np.prod(sizes, dtype=float):.0e} states does not fit.", "Try dqn or ppo.")
    return sizes
