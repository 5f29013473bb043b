"""Ways to choose among valued actions, on numpy arrays of values (N, A): shared by DQN, Q-learning and bandits."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.schedule import Rate, Share, constant
from reverie.core.types import Array, Clock

LOWEST_TEMPERATURE = 1e-8  # as good as greedy; schedules may end at 0


def random_greedy(values: Array, rng: np.random.Generator) -> Array:
    """The best action of each row; equals have equal chances."""
    best = values == values.max(axis=-1, keepdims=True)
    chosen: Array = np.where(best, rng.random(values.shape), -1.0).argmax(axis=-1)
    return chosen


def epsilon_greedy(best: Array, num_actions: int, epsilon: float, rng: np.random.Generator) -> Array:
    """With probability ``epsilon`` a random action, else the best one (N,)."""
    explores = rng.random(len(best)) < epsilon
    count = np.count_nonzero(explores)
    if count:
        best = best.copy()
        best[explores] = rng.integers(0, num_actions, count)
    return best


class EpsilonGreedy:
    """Mostly the best action, sometimes any."""

    class Config(ComponentConfig):
        kind: str = "epsilon"
        epsilon: Share = constant(0.1)
        """Share of random actions."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        """Actions (N,) for values and visit counts (N, A)."""
        best = random_greedy(values, rng)
        return epsilon_greedy(best, values.shape[-1], self.config.epsilon.at(clock), rng)

    def probabilities(self, values: Array, clock: Clock) -> Array:
        """How likely each action is, for expected SARSA."""
        epsilon = self.config.epsilon.at(clock)
        best = values == values.max(axis=-1, keepdims=True)
        return (1 - epsilon) * best / best.sum(axis=-1, keepdims=True) + epsilon / values.shape[-1]


class Softmax:
    """Actions in proportion to ``exp(value / temperature)``."""

    class Config(ComponentConfig):
        kind: str = "softmax"
        temperature: Rate = constant(1.0)
        """High: nearly uniform; low: nearly greedy."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        cumulative = self.probabilities(values, clock).cumsum(axis=-1)
        return (rng.random((len(values), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=-1)

    def probabilities(self, values: Array, clock: Clock) -> Array:
        scaled = values / max(self.config.temperature.at(clock), LOWEST_TEMPERATURE)
        powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        shares: Array = powers / powers.sum(axis=-1, keepdims=True)
        return shares


class UpperConfidence:
    """Optimism: value plus a bonus for actions tried seldom (UCB1, Auer et al. 2002); untried ones come first."""

    class Config(ComponentConfig):
        kind: str = "ucb"
        weight: float = Field(1.4, ge=0)
        """Size of the bonus; sqrt(2) for rewards between 0 and 1."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        return random_greedy(self._optimistic(values, visits), rng)

    def _optimistic(self, values: Array, visits: Array) -> Array:
        total = np.maximum(visits.sum(axis=-1, keepdims=True), 1)
        bonus = self.config.weight * np.sqrt(np.log(total) / np.maximum(visits, 1))
        return np.where(visits == 0, np.inf, values + bonus)


class Thompson:
    """Acts best for values drawn from what it believes of them (Thompson 1933)."""

    class Config(ComponentConfig):
        kind: str = "thompson"
        rewards: Literal["bernoulli", "gaussian"] = "gaussian"
        """bernoulli: rewards lie between 0 and 1, beliefs are Beta; gaussian: any rewards, beliefs are normal."""
        deviation: float = Field(1.0, gt=0)
        """Gaussian: the rewards' own deviation."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.counts_wins = config.rewards == "bernoulli"
        """Whether values must be means of what lies between 0 and 1."""

    def choose(self, values: Array, visits: Array, clock: Clock, rng: np.random.Generator) -> Array:
        if self.counts_wins:
            wins = np.clip(values, 0, 1) * visits  # means may be rounded beyond their bounds
            beliefs = rng.beta(1 + wins, 1 + visits - wins)
        else:
            beliefs = values + rng.standard_normal(values.shape) * self.config.deviation / np.sqrt(visits + 1)
        return random_greedy(beliefs, rng)
