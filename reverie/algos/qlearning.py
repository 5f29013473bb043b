"""Tabular learning: Q-learning (Watkins 1989), SARSA and expected SARSA; with one state, bandits.

For observations made of Discrete spaces, also Tuples and Dicts of them, which become one index. A second table counts
visits, for step sizes of 1 / visits, UCB and Thompson sampling. Equation numbers are those of Sutton & Barto 2018.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from reverie.agents.exploration import EpsilonGreedy, Thompson
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Read, Rollout
from reverie.core.schedule import Fraction, Schedule, constant
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Inspection, Mode, Row, State, Update, observation_keys
from reverie.data.rows import transitions

MAX_STATES = 10_000_000


class QLearningConfig(ComponentConfig):
    """Tabular learning."""

    built_once = frozenset({"initial_value"})

    kind: str = "qlearning"
    target: Literal["q", "sarsa", "expected_sarsa"] = "q"
    """Value of the next state: that of its best action, of the action taken there, or the mean over the policy."""
    learning_rate: Fraction | Literal["average"] = constant(0.1)
    """Step size; ``average`` is 1 / visits, which makes each value the mean of its targets."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: weight of a reward one step later; 0 for bandits."""
    initial_value: float = 0.0
    """Value of untried actions. A high one makes the agent try everything (optimistic initialisation)."""
    exploration: Annotated[ComponentConfig, Component("exploration")] = EpsilonGreedy.Config()
    """How actions are chosen while collecting."""


@runtime_checkable
class HasProbabilities(Protocol):
    """An exploration that knows how likely it takes each action."""

    def probabilities(self, values: Array, clock: Clock) -> Array: ...


class QLearning:
    """An agent with a table of values (states, actions)."""

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
        if config.target == "expected_sarsa" and not isinstance(self.exploration, HasProbabilities):
            raise ConfigError(
                f"Expected SARSA needs the probabilities of all actions, and '{config.exploration.kind}' has none.",
                "Set algorithm.exploration.kind=epsilon or softmax, or algorithm.target=q or sarsa.",
            )
        self.counts_wins = isinstance(self.exploration, Thompson) and self.exploration.counts_wins
        if self.counts_wins and config.learning_rate != "average":
            raise ConfigError(
                "Bernoulli Thompson sampling counts wins, so each value must be the mean of all rewards.",
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

    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        q_values = self.values[self._states(dict(rows))]
        policy = {"mode": q_values.argmax(-1), "q_values": q_values}
        if isinstance(self.exploration, HasProbabilities):
            policy["probs"] = self.exploration.probabilities(q_values.reshape(-1, q_values.shape[-1]), clock)
            policy["probs"] = policy["probs"].reshape(q_values.shape)
        return Inspection(policy, q_values.max(-1))

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Learn from the transitions of a rollout (N, T + 1), one moment of all envs after the other."""
        rows = self._with_pending(batch)
        states, is_transition = self._states(rows), transitions(rows).weight > 0
        # The action in the last row is not known yet. SARSA learns from that transition in the next update.
        num_moments = is_transition.shape[1] - (self.config.target == "sarsa")
        td_errors = [np.zeros(0)]
        for t in range(num_moments):
            moment = {
                "state": states[:, t], "action": rows["action"][:, t], "reward": rows["reward"][:, t + 1],
                "terminated": rows["terminated"][:, t + 1], "next_state": states[:, t + 1],
                "next_action": rows["action"][:, t + 1],
            }  # fmt: skip
            td_errors.append(self._learn({key: value[is_transition[:, t]] for key, value in moment.items()}, clock))
        if self.config.target == "sarsa":
            self.pending = {key: np.asarray(value[:, -2:-1]).copy() for key, value in rows.items()}
        errors = np.concatenate(td_errors)
        loss = float(np.abs(errors).mean()) if len(errors) else 0.0
        return Update({"loss": loss, "visited": float((self.visits > 0).mean())})

    def _learn(self, moment: Row, clock: Clock) -> Array:
        """Update the table with one transition of each env. Returns the TD errors (N,)."""
        taken = (moment["state"], moment["action"])
        next_values = self._next_values(moment["next_state"], moment["next_action"], clock)
        targets = moment["reward"] + self.config.gamma * ~moment["terminated"] * next_values
        if self.counts_wins:
            _check_probabilities(targets)
        td_errors: Array = targets - self.values[taken]
        np.add.at(self.visits, taken, 1)
        np.add.at(self.values, taken, self._step_sizes(taken, clock) * td_errors)
        return td_errors

    def _next_values(self, state: Array, action: Array, clock: Clock) -> Array:
        if self.config.target == "sarsa":
            return self.values[state, action]  # Eq. 6.7
        values = self.values[state]
        if self.config.target == "q":
            highest: Array = values.max(-1)  # Eq. 6.8
            return highest
        mean: Array = (self.exploration.probabilities(values, clock) * values).sum(-1)  # Eq. 6.9
        return mean

    def _step_sizes(self, taken: tuple[Array, Array], clock: Clock) -> Array:
        """Step sizes (N,). Envs with the same state and action share one step, as far as they would get one by one.

        The sum of their single steps would overshoot.
        """
        rate = self.config.learning_rate
        if not isinstance(rate, Schedule):
            return 1 / self.visits[taken]
        index = np.ravel_multi_index(taken, self.values.shape)
        count = (index[:, None] == index).sum(1)
        sizes: Array = (1 - (1 - rate.at(clock)) ** count) / count
        return sizes

    def _with_pending(self, batch: Batch) -> Row:
        rows = {key: np.asarray(value) for key, value in batch.items()}
        rows.setdefault("valid", np.ones_like(rows["is_first"]))  # some rollouts lack it, and columns must match
        if not self.pending:
            return rows
        return {key: np.concatenate([self.pending[key], value], axis=1) for key, value in rows.items()}

    def _states(self, row: Batch) -> Array:
        """One index per row, from all its discrete observations."""
        leading = np.asarray(row["is_first"]).shape
        parts = [np.asarray(row[key]).reshape(*leading, -1) for key in observation_keys(row)]
        index: Array = np.ravel_multi_index(tuple(np.moveaxis(np.concatenate(parts, -1), -1, 0)), self.sizes)
        return index

    # ---------------------------------------------------------------- state

    def policy_state(self) -> State:
        return {"values": self.values.copy(), "visits": self.visits.copy()}

    def load_policy_state(self, state: State) -> None:
        self.values, self.visits = state["values"].copy(), state["visits"].copy()

    def state(self) -> State:
        return {**self.policy_state(), "pending": dict(self.pending)}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.pending = dict(state["pending"])


def _check_probabilities(targets: Array) -> None:
    outside = targets[(targets < 0) | (targets > 1)]
    if len(outside):
        raise TrainingError(
            f"Bernoulli Thompson sampling needs returns between 0 and 1; there was one of {outside[0]:.3g}.",
            "Set algorithm.exploration.rewards=gaussian.",
        )


def _table_sizes(specs: Specs) -> tuple[int, ...]:
    sizes = tuple(size for spec in specs.observations.values() for size in spec.classes)
    if any(spec.kind != "discrete" for spec in specs.observations.values()):
        raise ConfigError("A table needs discrete observations; this env has vectors or images.", "Try dqn or ppo.")
    if np.prod(sizes, dtype=float) > MAX_STATES:
        raise ConfigError(f"A table of {np.prod(sizes, dtype=float):.0e} states does not fit.", "Try dqn or ppo.")
    return sizes
