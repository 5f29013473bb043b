"""Vectors of normal variables as latents: statistics have the shape (..., 2, S), means above deviations.

Hafner et al. 2019, "Learning Latent Dynamics for Planning from Pixels".
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_and_deviation(output: Tensor, min_std: float) -> Tensor:
    """Statistics (..., 2, S) from what a network puts out (..., 2 * S)."""
    mean, spread = output.chunk(2, -1)
    return torch.stack([mean, F.softplus(spread) + min_std], -2)


def draw_normal(statistics: Tensor, noise: Tensor) -> Tensor:
    """A sample (..., S) for standard normal noise (..., S); gradients flow through it."""
    mean, deviation = statistics.unbind(-2)
    return mean + deviation * noise


def divergence(statistics: Tensor, other: Tensor) -> Tensor:
    """Kullback-Leibler divergence in nats (...), summed over the variables."""
    (mean, deviation), (other_mean, other_deviation) = statistics.unbind(-2), other.unbind(-2)
    ratio = deviation / other_deviation
    distance = (mean - other_mean) / other_deviation
    return (0.5 * (ratio.square() + distance.square() - 1) - ratio.log()).sum(-1)


def split_divergence(posterior: Tensor, prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """The divergence twice: once to pull the prior, once the posterior. Neither pulls below ``free_nats``."""
    dynamics = divergence(posterior.detach(), prior)
    representation = divergence(posterior, prior.detach())
    return dynamics.clamp(min=free_nats), representation.clamp(min=free_nats)


def entropy(statistics: Tensor) -> Tensor:
    """Entropy in nats (...), summed over the variables."""
    deviation = statistics.select(-2, 1)
    return (deviation.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
