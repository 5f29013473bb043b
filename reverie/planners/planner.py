"""The loop that planners share: draw candidate action sequences, score them all, refit the proposal to the best.

A planner knows no model. It gets a function that scores candidates (H, N, C, W) of all N envs at once, and noise that
was drawn outside. The plan of the last row, shifted by one step, is where the next plan starts: the algorithm keeps it
in its carry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from reverie.core.config import ComponentConfig
from reverie.core.schedule import Rate, constant
from reverie.core.specs import ActionSpec
from reverie.core.types import Array, Clock
from reverie.planners.proposals import Bounds, Proposal, propose

Score = Callable[[Tensor, int], Tensor]
"""From candidates (H, N, C, W) and the number of the iteration to their returns (N, C). Called without gradient."""


class PlannerConfig(ComponentConfig):
    """Settings that all planners share."""

    built_once = frozenset({"horizon"})

    horizon: int = Field(3, ge=1)
    """Steps that are planned ahead."""
    growing_horizon: Rate | None = None
    """Steps that are planned ahead at this point of a run, at most ``horizon``. Empty: always ``horizon``."""
    samples: int = Field(512, ge=1)
    """Candidate action sequences per iteration, those of the policy included."""
    policy_samples: int = Field(24, ge=0)
    """Candidates that the policy proposes by acting in the model. They stay in every iteration. Needs a policy."""
    elites: int = Field(64, ge=1)
    """The best candidates, to which the proposal is refitted."""
    iterations: int = Field(6, ge=1)
    """Rounds of sampling, scoring and refitting."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """How much of the mean stays as it was before a refit."""
    min_std: Rate = constant(0.05)
    """Smallest standard deviation of continuous actions."""
    max_std: float = Field(2.0, gt=0)
    """Standard deviation of continuous actions in the first iteration, and the largest later."""
    uniform_mix: float = Field(0.01, ge=0, lt=1)
    """Discrete actions: weight of the uniform distribution in every proposal, so that no action dies out."""
    warm_start: bool = True
    """Start from the plan of the last row, shifted by a step, instead of from nothing."""

    @model_validator(mode="after")
    def _has_candidates(self) -> Self:
        if self.policy_samples >= self.samples:
            raise ValueError("samples must be above policy_samples: nothing else would be drawn")
        if self.elites > self.samples:
            raise ValueError("elites must not be above samples")
        return self


class PlanNoise(NamedTuple):
    """All noise of one plan."""

    candidates: Tensor  # (I, H, N, C - policy_samples, W)
    choice: Tensor  # (N, E): uniform in [0, 1)


class Plan(NamedTuple):
    """What was planned for N envs."""

    action: Tensor  # (N, W): the first action
    proposal: Proposal  # (H, N, W)
    values: Tensor  # (N, E): returns of the last elites, the best first
    weights: Tensor  # (N, E): how much each elite counts; they sum to 1
    spread: Tensor  # (N): standard deviation of the elites' actions, averaged over steps and action values
    gain: Tensor  # (N): the elites' mean return, less the median return of the sequences drawn first
    policy_gain: Tensor | None  # (N): the same for the policy's candidates, in the last iteration


class Planner:
    """Base of the planners. They differ in how elites are weighed and which action is taken."""

    Config: type[PlannerConfig]

    def __init__(self, config: PlannerConfig, action: ActionSpec) -> None:
        self.config: Any = config
        self.actions = propose(action)

    # ---------------------------------------------------------------- the carry: plans (N, H, W) as arrays

    def initial_carry(self, num_envs: int) -> Array:
        """Plans before an episode."""
        return np.tile(self.actions.unknown(), (num_envs, self.config.horizon, 1))

    def shifted(self, plans: Array, is_first: Array) -> Array:
        """The means from which plans for the arriving rows start. Nothing is known where an episode begins."""
        fresh = self.initial_carry(len(plans))
        if not self.config.warm_start:
            return fresh
        later = np.concatenate([plans[:, 1:], fresh[:, :1]], axis=1)
        return np.where(is_first[:, None, None], fresh, later)

    # ---------------------------------------------------------------- planning

    def steps(self, clock: Clock) -> int:
        """How many steps are planned ahead now."""
        horizon: int = self.config.horizon
        growing = self.config.growing_horizon
        return horizon if growing is None else min(horizon, max(1, int(growing.at(clock))))

    def sample_noise(self, rng: np.random.Generator, num_envs: int) -> PlanNoise:
        """Noise for one plan, as tensors on the CPU."""
        config = self.config
        drawn = config.samples - config.policy_samples
        candidates = self.actions.sample_noise(rng, config.iterations, config.horizon, num_envs, drawn)
        choice = rng.random((num_envs, config.elites), dtype=np.float32)
        return PlanNoise(torch.from_numpy(candidates), torch.from_numpy(choice))

    @torch.inference_mode()
    def plan(
        self, score: Score, start: Tensor, noise: PlanNoise, clock: Clock, policy_candidates: Tensor | None = None
    ) -> Plan:
        """Plan from a mean (H, N, W). ``policy_candidates`` (H, N, policy_samples, W) compete in every iteration.

        With a growing horizon, steps that are not planned yet keep the mean they had.
        """
        steps, unplanned = self.steps(clock), start[self.steps(clock) :]
        if policy_candidates is not None:
            policy_candidates = policy_candidates[:steps]
        bounds = Bounds(self.config.min_std.at(clock), self.config.max_std, self.config.uniform_mix)
        proposal = self.actions.begin(start[:steps], bounds)
        for iteration, drawn in enumerate(noise.candidates[:, :steps]):
            candidates = self.actions.sample(proposal, drawn)
            if policy_candidates is not None:
                candidates = torch.cat([policy_candidates, candidates], 2)
            # A candidate without a number is the worst, not the best as 0 would be among negative returns.
            values = score(candidates, iteration).nan_to_num(nan=torch.finfo(candidates.dtype).min)
            if iteration == 0:
                first = values[:, values.shape[1] - drawn.shape[2] :].median(1).values
            elite_values, index = values.topk(min(self.config.elites, values.shape[1]), dim=1)
            elites = candidates[:, torch.arange(len(index), device=index.device)[:, None], index]  # (H, N, E, W)
            weights = self.weigh(elite_values)
            fitted = self.actions.refit(elites, weights, bounds)
            proposal = fitted._replace(mean=torch.lerp(fitted.mean, proposal.mean, self.config.momentum))
        action = self.choose(proposal, elites, weights, noise.choice)
        spread = elites.std(2, correction=0).mean((0, 2))
        policy_gain = None
        if policy_candidates is not None:
            policy_gain = values[:, : policy_candidates.shape[2]].mean(1) - first
        proposal = proposal._replace(mean=torch.cat([proposal.mean, unplanned]))
        return Plan(action, proposal, elite_values, weights, spread, elite_values.mean(1) - first, policy_gain)

    def weigh(self, values: Tensor) -> Tensor:
        """How much each elite counts (N, E), from the elites' returns (N, E)."""
        raise NotImplementedError

    def choose(self, proposal: Proposal, elites: Tensor, weights: Tensor, noise: Tensor) -> Tensor:
        """The first action (N, W) to take."""
        raise NotImplementedError
