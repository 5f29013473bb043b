"""Losses and the numbers that watch them, all as weighted means.

Rows that are no transitions (the last row of an episode, padding) have weight 0 and must not move any result,
so nothing here takes a plain mean. Where all weights are 0 the results are 0, never NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SMALLEST_WEIGHT = 1e-8


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """The mean of ``x`` over its weights; both have the same shape."""
    return (x * weight).sum() / weight.sum().clamp(min=_SMALLEST_WEIGHT)


def weighted_std(x: Tensor, weight: Tensor) -> Tensor:
    """The deviation of ``x`` around its weighted mean, without Bessel's correction."""
    return weighted_mean((x - weighted_mean(x, weight)) ** 2, weight).sqrt()


def explained_variance(prediction: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Share of the target's variance that the prediction accounts for: 1 is perfect, 0 as good as a constant.

    A target that does not vary has nothing to explain and gives 0.
    """
    residual = weighted_std(target - prediction, weight) ** 2
    total = weighted_std(target, weight) ** 2
    return torch.where(total > 0, 1 - residual / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def clipped_policy_loss(log_ratio: Tensor, advantage: Tensor, clip: float | Tensor, weight: Tensor) -> Tensor:
    """PPO's surrogate (Schulman et al. 2017, Eq. 7) with the sign of a loss."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -weighted_mean(torch.minimum(ratio * advantage, clipped * advantage), weight)


def clipped_value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip: float | Tensor | None, weight: Tensor
) -> Tensor:
    """Squared error of the value; with ``clip``, moving further than this from the old one gains nothing."""
    error = (value - target) ** 2
    if clip is not None:
        near = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (near - target) ** 2)
    return weighted_mean(error, weight)


def approximate_kl(log_ratio: Tensor, weight: Tensor) -> Tensor:
    """KL(old || new) from samples of the old policy: ratio - 1 - log ratio, unbiased and never negative."""
    return weighted_mean(log_ratio.expm1() - log_ratio, weight)


def clip_fraction(log_ratio: Tensor, clip: float | Tensor, weight: Tensor) -> Tensor:
    """Share of the samples whose ratio lies outside the clip range."""
    return weighted_mean((log_ratio.expm1().abs() > clip).to(weight.dtype), weight)
