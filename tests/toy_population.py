"""The cross-entropy method (Rubinstein 1999) over linear policies: a toy algorithm with a population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reverie.agents.population import CANDIDATE, assign_candidates, candidate_returns, initial_candidates
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Episodes, Read
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update


class ToyEvolution:
    """Every episode is played by one candidate; evaluation uses the mean of their distribution."""

    class Config(ComponentConfig):
        """Sizes."""

        kind: str = "tests.toy_population.ToyEvolution"
        """This class."""
        population: int = 16
        """Candidates per generation."""
        elites: int = 4
        """Candidates that the next generation is drawn around."""

    traits = Traits(actions=("discrete",), on_policy=True)

    def __init__(self, config: Config, specs: Specs, rng: np.random.Generator) -> None:
        self.config: Any = config
        self.specs = specs
        shape = (specs.observations["obs"].shape[0], specs.action.classes[0])
        self.mean, self.std = np.zeros(shape), np.ones(shape)
        self.candidates = self._sample(rng)  # (C, features, actions)

    @property
    def reads(self) -> Mapping[str, Read]:
        return {"update": Episodes()}

    def initial_carry(self, num_envs: int) -> Carry:
        return initial_candidates(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        if mode is Mode.EVALUATE:
            return (now["obs"] @ self.mean).argmax(-1), carry, {}
        candidate = assign_candidates(now, carry, self.config.population)
        scores = np.einsum("nf,nfa->na", now["obs"], self.candidates[candidate])
        return scores.argmax(-1), {CANDIDATE: candidate}, {CANDIDATE: candidate}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Move the distribution to the best candidates and draw a new generation."""
        returns = candidate_returns(batch, self.config.population)
        order = np.argsort(np.where(returns.episodes > 0, returns.mean, -np.inf))
        elites = self.candidates[order[-self.config.elites :]]
        self.mean, self.std = elites.mean(0), elites.std(0) + 0.1
        self.candidates = self._sample(rng)
        return Update({"fitness_mean": np.nanmean(returns.mean), "fewest_episodes": returns.episodes.min()})

    def _sample(self, rng: np.random.Generator) -> Array:
        drawn: Array = self.mean + self.std * rng.standard_normal((self.config.population, *self.mean.shape))
        return drawn

    def policy_state(self) -> State:
        return {"mean": self.mean, "candidates": self.candidates}

    def load_policy_state(self, state: State) -> None:
        self.mean, self.candidates = state["mean"].copy(), state["candidates"].copy()

    def state(self) -> State:
        return {**self.policy_state(), "std": self.std}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.std = state["std"].copy()
