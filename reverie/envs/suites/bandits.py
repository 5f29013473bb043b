"""Bandits: ``Bandit/Bernoulli-v0``, ``Bandit/Gaussian-v0``, ``Bandit/Drifting-v0``, ``Bandit/Contextual-v0``.

The arms depend on ``arms_seed``, not on the episode's seed, so they are the same in every episode. An episode is 1000
pulls. ``info["regret"]`` is the sum, since the reset, of the best arm's mean reward minus that of the chosen arm.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.envs.suite import Registration, Suite


class Bandit(gym.Env[Any, Any]):
    """Base class. ``means`` (contexts, arms) holds the expected rewards."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, arms: int = 10, contexts: int = 1, arms_seed: int = 0, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = gym.spaces.Discrete(arms)
        self.observation_space = gym.spaces.Discrete(contexts)
        self.initial_means = self.draw_means(make_generator(arms_seed, "bandit arms"), contexts, arms)
        self.means = self.initial_means.copy()

    def draw_means(self, rng: np.random.Generator, contexts: int, arms: int) -> Array:
        return rng.standard_normal((contexts, arms))

    def pull(self, mean: float) -> float:
        """Draw a reward of an arm with this mean."""
        return mean + float(self.np_random.standard_normal())

    def move(self) -> None:
        """Change the arms after a pull."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.means = self.initial_means.copy()
        self.regret = 0.0
        self.context = int(self.np_random.integers(len(self.means)))
        return self.context, {"regret": 0.0}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        means = self.means[self.context]
        self.regret += float(means.max() - means[action])
        reward = self.pull(float(means[action]))
        self.move()
        self.context = int(self.np_random.integers(len(self.means)))
        return self.context, reward, False, False, {"regret": self.regret}


class GaussianBandit(Bandit):
    """Rewards are normal with standard deviation 1. The means of the arms are standard normal."""


class BernoulliBandit(Bandit):
    """Rewards are 0 or 1. The arms' probabilities of a 1 are evenly spaced between 0 and 1, in random order.

    Random probabilities could be too close for any affordable number of pulls to distinguish the arms.
    """

    def draw_means(self, rng: np.random.Generator, contexts: int, arms: int) -> Array:
        probabilities = (np.arange(arms) + 0.5) / arms
        return rng.permuted(np.tile(probabilities, (contexts, 1)), axis=1)

    def pull(self, mean: float) -> float:
        return float(self.np_random.random() < mean)


class DriftingBandit(Bandit):
    """A Gaussian bandit whose means follow a random walk."""

    def __init__(self, arms: int = 10, drift: float = 0.05, arms_seed: int = 0, render_mode: str | None = None) -> None:
        super().__init__(arms, 1, arms_seed, render_mode)
        self.drift = drift

    def move(self) -> None:
        self.means = self.means + self.drift * self.np_random.standard_normal(self.means.shape)


class ContextualBandit(BernoulliBandit):
    """A Bernoulli bandit with different probabilities in each context. The observation is the context."""

    def __init__(self, arms: int = 5, contexts: int = 4, arms_seed: int = 0, render_mode: str | None = None) -> None:
        super().__init__(arms, contexts, arms_seed, render_mode)


SUITE = Suite(
    name="bandits",
    title="bandits",
    prefixes=("Bandit/",),
    example="Bandit/Bernoulli-v0",
    id_forms=("Bandit/Bernoulli-v0", "Bandit/Contextual-v0"),
    modules=("reverie.envs.suites.bandits",),
    envs={
        f"Bandit/{name}-v0": Registration(f"reverie.envs.suites.bandits:{name}Bandit", 1000)
        for name in ("Bernoulli", "Gaussian", "Drifting", "Contextual")
    },
)
