"""What planners draw candidate actions from: one distribution per env, step and action value, refitted to the elites.

Sequences are (H, N, C, W): H steps, N envs, C candidates, W columns of an action. Continuous actions have one column
per value in [-1, 1], discrete ones a one-hot vector per choice.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.core.errors import ConfigError
from reverie.core.specs import ActionSpec
from reverie.core.types import Array, random_array

_SMALLEST = 1e-20
"""Keeps logarithms finite."""


class Proposal(NamedTuple):
    """The distribution of every action value, without gradient."""

    mean: Tensor
    """(H, N, W). Of discrete actions: their probabilities."""
    std: Tensor
    """(H, N, W)."""


class Bounds(NamedTuple):
    """What refitting keeps a proposal within."""

    min_std: float
    max_std: float
    uniform_mix: float


class ProposedActions(Protocol):
    """A kind of action that planners can choose."""

    width: int
    """W."""

    def unknown(self) -> Array:
        """The mean (W,) of a step about which nothing is known."""
        ...

    def none(self, count: int) -> Array:
        """Actions (count, *shape) where none is taken: zeros, as envs take them."""
        ...

    def begin(self, mean: Tensor, bounds: Bounds) -> Proposal:
        """The first proposal around a mean (H, N, W)."""
        ...

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        """Noise (*leading, W) for candidates."""
        ...

    def sample(self, proposal: Proposal, noise: Tensor) -> Tensor:
        """Candidates (H, N, C, W)."""
        ...

    def refit(self, elites: Tensor, weights: Tensor, bounds: Bounds) -> Proposal:
        """The weighted moments of elites (H, N, E, W); ``weights`` (N, E) sum to 1."""
        ...

    def best(self, mean: Tensor) -> Tensor:
        """The most likely action (N, W) of a mean (N, W)."""
        ...

    def decode(self, action: Tensor) -> Tensor:
        """Actions (N, W) as envs take them: (N, *shape)."""
        ...


class ContinuousActions:
    """Independent normal variables, clamped to [-1, 1]."""

    def __init__(self, action: ActionSpec) -> None:
        self.shape, self.width = action.shape, action.width

    def unknown(self) -> Array:
        return np.zeros(self.width, np.float32)

    def none(self, count: int) -> Array:
        return np.zeros((count, *self.shape), np.float32)

    def begin(self, mean: Tensor, bounds: Bounds) -> Proposal:
        return Proposal(mean, torch.full_like(mean, bounds.max_std))

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        return random_array(rng, *leading, self.width)

    def sample(self, proposal: Proposal, noise: Tensor) -> Tensor:
        return torch.addcmul(proposal.mean.unsqueeze(2), proposal.std.unsqueeze(2), noise).clamp_(-1, 1)

    def refit(self, elites: Tensor, weights: Tensor, bounds: Bounds) -> Proposal:
        mean = _weighted_mean(elites, weights)
        variance = _weighted_mean((elites - mean.unsqueeze(2)).square_(), weights)
        return Proposal(mean, variance.sqrt_().clamp_(bounds.min_std, bounds.max_std))

    def best(self, mean: Tensor) -> Tensor:
        return mean

    def decode(self, action: Tensor) -> Tensor:
        return action.reshape(-1, *self.shape)


class DiscreteActions:
    """Independent categorical variables, one per choice."""

    def __init__(self, action: ActionSpec) -> None:
        self.shape, self.classes, self.width = action.shape, list(action.classes), sum(action.classes)

    def unknown(self) -> Array:
        return np.concatenate([np.full(count, 1 / count, np.float32) for count in self.classes])

    def none(self, count: int) -> Array:
        return np.zeros((count, *self.shape), np.int64)

    def begin(self, mean: Tensor, bounds: Bounds) -> Proposal:
        """Mixed with the uniform distribution: an earlier plan may have been certain of what is wrong now."""
        return self._proposal(mean, bounds.uniform_mix)

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        return rng.random((*leading, self.width), dtype=np.float32)

    def sample(self, proposal: Proposal, noise: Tensor) -> Tensor:
        """The Gumbel trick: the class with the highest log-probability plus noise."""
        return self.best(proposal.mean.add(_SMALLEST).log_().unsqueeze(2) + gumbel(noise))

    def refit(self, elites: Tensor, weights: Tensor, bounds: Bounds) -> Proposal:
        return self._proposal(_weighted_mean(elites, weights), bounds.uniform_mix)

    def best(self, mean: Tensor) -> Tensor:
        parts = [F.one_hot(part.argmax(-1), part.shape[-1]) for part in mean.split(self.classes, -1)]
        return torch.cat(parts, -1).to(mean.dtype)

    def decode(self, action: Tensor) -> Tensor:
        indices: Tensor = torch.stack([part.argmax(-1) for part in action.split(self.classes, -1)], -1)
        return indices.reshape(-1, *self.shape)

    def _proposal(self, probs: Tensor, uniform_mix: float) -> Proposal:
        mixed = torch.lerp(probs, torch.as_tensor(self.unknown(), device=probs.device), uniform_mix)
        return Proposal(mixed, (mixed * (1 - mixed)).clamp_(min=0).sqrt_())


def propose(action: ActionSpec) -> ProposedActions:
    """The form of proposals for an env's actions."""
    if action.parts:
        raise ConfigError("Planners choose actions of one kind; this env has mixed ones.", "Set planner.kind=none.")
    return DiscreteActions(action) if action.classes else ContinuousActions(action)


def gumbel(uniform: Tensor) -> Tensor:
    """Gumbel noise from uniform noise in [0, 1): added to log-probabilities, its argmax is a sample."""
    return -torch.log(-torch.log(uniform + _SMALLEST) + _SMALLEST)


def _weighted_mean(elites: Tensor, weights: Tensor) -> Tensor:
    """(H, N, E, W) and (N, E) to (H, N, W)."""
    return (elites * weights.unsqueeze(-1)).sum(2)
