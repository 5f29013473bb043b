"""Exploration strategies over action values (N, A), in numpy: for DQN, Q-learning and bandits."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.schedule import Fraction, Rate, constant
from reverie.core.types import Array, Clock

LOWEST_TEMPERATURE = 1e-8  # practically greedy; schedules may end at 0


def random_greedy(values: Array, rng: np.random.Generator) -> Array:
    """The best action of each row. Ties are broken at random."""
    best = values == values.max(axis=-1, keepdims=True)
    actions: Array = np.where(best, rng.random(values.shape), -1.0).argmax(axis=-1)
    return actions


def epsilon_greedy(best: Array, num_actions: int, epsilon: float, rng: np.random.Generator) -> Array:
    """The best actions (N,), each replaced by a random one with probability ``epsilon``."""
    explores = rng.random(len(best)) < epsilon
    count = np.count_nonzero(explores)
    if count:
        best = best.copy()
        best[explores] = rng.integers(0, num_actions, count)
    return best


class EpsilonGreedy:
    """The best action, or a random one with probability epsilon."""

    class Config(ComponentConfig):
        kind: str = "epsilon"
        epsilon: Fraction = constant(0.1)
        """Fraction of random actions."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        """Actions (N,) for values and visit counts (N, A)."""
        best = random_greedy(values, rng)
        return epsilon_greedy(best, values.shape[-1], self.config.epsilon.at(clock), rng)

    def probabilities(self, values: Array, clock: Clock) -> Array:
        """The probability (N, A) of each action, for expected SARSA."""
        epsilon = self.config.epsilon.at(clock)
        best = values == values.max(axis=-1, keepdims=True)
        probs: Array = (1 - epsilon) * best / best.sum(axis=-1, keepdims=True) + epsilon / values.shape[-1]
        return probs


class Softmax:
    """Probabilities proportional to ``exp(value / temperature)``."""

    class Config(ComponentConfig):
        kind: str = "softmax"
        temperature: Rate = constant(1.0)
        """High is nearly uniform, low is nearly greedy."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        cumulative = self.probabilities(values, clock).cumsum(axis=-1)
        chosen: Array = (rng.random((len(values), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=-1)
        return chosen

    def probabilities(self, values: Array, clock: Clock) -> Array:
        scaled = values / max(self.config.temperature.at(clock), LOWEST_TEMPERATURE)
        exponentials = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        probs: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return probs


class UpperConfidence:
    """UCB1 (Auer et al. 2002): value plus a bonus for rarely tried actions. Untried actions come first."""

    class Config(ComponentConfig):
        kind: str = "ucb"
        weight: float = Field(1.4, ge=0)
        """Size of the bonus. Theory has sqrt(2) for rewards in [0, 1]."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        return random_greedy(self._upper_bounds(values, visits), rng)

    def _upper_bounds(self, values: Array, visits: Array) -> Array:
        total = np.maximum(visits.sum(axis=-1, keepdims=True), 1)
        bonus = self.config.weight * np.sqrt(np.log(total) / np.maximum(visits, 1))
        return np.where(visits == 0, np.inf, values + bonus)


class Thompson:
    """Thompson 1933: the best action for values sampled from their posterior."""

    class Config(ComponentConfig):
        kind: str = "thompson"
        rewards: Literal["bernoulli", "gaussian"] = "gaussian"
        """bernoulli: rewards in [0, 1], Beta posteriors. gaussian: any rewards, normal posteriors."""
        deviation: float = Field(1.0, gt=0)
        """Standard deviation of Gaussian rewards."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.counts_wins = config.rewards == "bernoulli"
        """Whether values must be means of rewards in [0, 1]."""

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        if self.counts_wins:
            wins = np.clip(values, 0, 1) * visits  # rounding may move means out of [0, 1]
            sampled = rng.beta(1 + wins, 1 + visits - wins)
        else:
            sampled = values + rng.standard_normal(values.shape) * self.config.deviation / np.sqrt(visits + 1)
        return random_greedy(sampled, rng)
