"""Distributional reinforcement learning: targets and losses for distributions of returns."""

from __future__ import annotations

import torch
from torch import Tensor


def project_categorical(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """The distribution of ``reward + discount * return``, spread back onto the support (B, K).

    Bellemare et al. 2017, Eq. 7: the probability of each projected atom is split between its two neighbours on the
    support, in proportion to closeness.
    """
    low, high = support[0], support[-1]
    projected = (reward.unsqueeze(-1) + discount.unsqueeze(-1) * support).clamp(low, high)  # (B, K)
    spacing = (high - low) / (len(support) - 1)
    # Fraction of the probability at projected[j] for support[i]: 1 - distance in grid steps, at least 0.
    closeness = 1 - (projected.unsqueeze(1) - support.unsqueeze(-1)).abs() / spacing  # (B, K to, K from)
    return (closeness.clamp(min=0) * probability.unsqueeze(1)).sum(-1)


def quantile_huber_loss(quantiles: Tensor, target: Tensor, threshold: float = 1.0) -> Tensor:
    """Loss (B,) of predicted quantiles (B, N), given samples of the target (B, M). Dabney et al. 2018, Eq. 10."""
    count = quantiles.shape[-1]
    levels = (torch.arange(count, device=quantiles.device) + 0.5) / count
    error = target.unsqueeze(1) - quantiles.unsqueeze(-1)  # (B, N, M)
    size = error.abs()
    huber = torch.where(size <= threshold, 0.5 * error.square(), threshold * (size - 0.5 * threshold))
    asymmetry = (levels.unsqueeze(-1) - (error.detach() < 0).float()).abs()
    return (asymmetry * huber / threshold).mean(-1).sum(-1)
