"""Vectors of normal latent variables. Parameters have the shape (..., 2, S): means, then standard deviations.

Hafner et al. 2019, "Learning Latent Dynamics for Planning from Pixels".
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_and_std(output: Tensor, min_std: float) -> Tensor:
    """Network outputs (..., 2 * S) to parameters (..., 2, S)."""
    mean, spread = output.chunk(2, -1)
    return torch.stack([mean, F.softplus(spread) + min_std], -2)


def rsample_normal(params: Tensor, noise: Tensor) -> Tensor:
    """A differentiable sample (..., S) for standard normal noise (..., S)."""
    mean, std = params.unbind(-2)
    return mean + std * noise


def kl_divergence(params: Tensor, other: Tensor) -> Tensor:
    """KL divergence in nats (...), summed over the variables."""
    (mean, std), (other_mean, other_std) = params.unbind(-2), other.unbind(-2)
    ratio = std / other_std
    distance = (mean - other_mean) / other_std
    return (0.5 * (ratio.square() + distance.square() - 1) - ratio.log()).sum(-1)


def kl_losses(posterior: Tensor, prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """KL(posterior, prior) twice, clipped at ``free_nats``: to train the prior, and to train the posterior."""
    dynamics = kl_divergence(posterior.detach(), prior)
    representation = kl_divergence(posterior, prior.detach())
    return dynamics.clamp(min=free_nats), representation.clamp(min=free_nats)


def entropy(params: Tensor) -> Tensor:
    """Entropy in nats (...), summed over the variables."""
    std = params.select(-2, 1)
    return (std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
