"""Policy and value losses, and metrics about them.

Rows that start no transition (final rows, padding) have weight 0, so means are weighted. If all weights are 0, results
are 0, never NaN. Losses are per sample; the caller takes the mean.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Clip = TypeVar("Clip", float, Tensor)
_SMALLEST_WEIGHT = 1e-8


def weighted_mean(x: Tensor, weight: Tensor, total: Tensor | None = None) -> Tensor:
    """The weighted mean of ``x``. Weights have the shape of ``x``.

    For microbatches, ``total`` is the weight of the whole batch: their results then add up to its mean.
    """
    return (x * weight).sum() / (weight.sum() if total is None else total).clamp(min=_SMALLEST_WEIGHT)


def weighted_std(x: Tensor, weight: Tensor) -> Tensor:
    """The weighted standard deviation of ``x``, without Bessel's correction."""
    return weighted_mean((x - weighted_mean(x, weight)) ** 2, weight).sqrt()


def explained_variance(prediction: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Fraction of the target's variance that the prediction explains: 1 is perfect, 0 as good as a constant.

    0 for a constant target.
    """
    residual = weighted_std(target - prediction, weight) ** 2
    total = weighted_std(target, weight) ** 2
    return torch.where(total > 0, 1 - residual / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def clipped_policy_loss(log_ratio: Tensor, advantage: Tensor, clip: Clip) -> Tensor:
    """PPO's clipped surrogate objective (Schulman et al. 2017, Eq. 7), negated to be a loss."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantage, clipped * advantage)


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: Clip | None) -> Tensor:
    """Squared error. With ``clip``, there is no gradient for moving farther than this from the old value."""
    error = (value - target).square()
    if clip is None:
        return error
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(error, (clipped - target).square())


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """KL(old || new) per sample of the old policy: ratio - 1 - log ratio, unbiased and never negative."""
    return log_ratio.expm1() - log_ratio


def is_clipped(log_ratio: Tensor, clip: float | Tensor) -> Tensor:
    """1 for samples whose ratio is outside the clip range, else 0."""
    return (log_ratio.expm1().abs() > clip).float()


def minibatch_weights(weight: Tensor, size: int) -> Tensor:
    """Weights (R,) scaled to a sum of 1 in each minibatch of ``size`` rows, so a weighted mean is one dot product."""
    return torch.cat([
        (rows / rows.sum(1, keepdim=True).clamp(min=_SMALLEST_WEIGHT)).flatten() for rows in _batches(weight, size)
    ])  # fmt: skip


def normalise_minibatches(x: Tensor, weights: Tensor, size: int) -> Tensor:
    """Scale ``x`` (R,) to mean 0 and standard deviation 1 in each minibatch; weights by :func:`minibatch_weights`."""
    minibatches = []
    for rows, row_weights in zip(_batches(x, size), _batches(weights, size), strict=True):
        rows = rows - (rows * row_weights).sum(1, keepdim=True)
        deviation = (rows.square() * row_weights).sum(1, keepdim=True).sqrt()
        minibatches.append((rows / (deviation + 1e-8)).flatten())
    return torch.cat(minibatches)


def _batches(x: Tensor, size: int) -> list[Tensor]:
    """Whole minibatches as (count, size), and the remaining rows as (1, rest)."""
    whole = len(x) // size * size
    parts = [x[:whole].view(-1, size), x[whole:].unsqueeze(0)]
    return [part for part in parts if part.numel()]
