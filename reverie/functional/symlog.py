"""Numbers of any size for networks: a symmetric logarithm, and scalars as weights on two bins.

Hafner et al. 2023, "Mastering Diverse Domains through World Models". Bins lie evenly in symlog space. A scalar is
the pair of bins around it, weighted by closeness, so that regression becomes classification and the size of a target
does not change the size of a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LARGEST_LOG = 20.0


def symlog(x: Tensor) -> Tensor:
    """The logarithm of 1 + the magnitude, with the sign kept: 0 stays 0, small numbers nearly so."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of :func:`symlog`."""
    return x.sign() * x.abs().expm1()


def symexp_bins(count: int) -> Tensor:
    """Bins (count,) that are exactly symmetric around 0; an odd count has one at 0."""
    steps = (count + 1) // 2
    negative = symexp(torch.linspace(-_LARGEST_LOG, 0, steps))
    return torch.cat([negative, -negative.flip(0)[count % 2 :]])


def two_hot(target: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """The index of the bin below each target, and the weight of the one above; targets outside count as the ends."""
    below = (torch.searchsorted(bins, target.contiguous(), right=True) - 1).clamp(0, len(bins) - 2)
    low, high = bins[below], bins[below + 1]
    return below, ((target - low) / (high - low)).clamp(0, 1)


class _CrossEntropy(torch.autograd.Function):
    """With two-hot targets, whose gradient touches two bins besides the softmax, which is at hand already."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, probability: Tensor, bins: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
        log_total = logits.amax(-1) - probability.amax(-1).log()
        pairs, shares, losses = [], [], []
        for target in targets:
            below, share = two_hot(target, bins)
            pairs.append(torch.stack([below, below + 1], -1))
            shares.append(torch.stack([1 - share, share], -1))
            losses.append(log_total - (logits.gather(-1, pairs[-1]) * shares[-1]).sum(-1))
        ctx.save_for_backward(probability, *pairs, *shares)
        return tuple(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        probability, *others = ctx.saved_tensors
        result = probability * sum(gradients).unsqueeze(-1)
        pairs, shares = others[: len(gradients)], others[len(gradients) :]
        for gradient, pair, share in zip(gradients, pairs, shares, strict=True):
            result.scatter_add_(-1, pair, share * -gradient.unsqueeze(-1))
        return result, None, None, *(None for _ in gradients)


def two_hot_losses(logits: Tensor, probability: Tensor, bins: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
    """Cross entropy (...) between logits (..., K) and each of several two-hot targets (...).

    ``probability`` is ``logits.softmax(-1)`` without its gradient; whoever wants the mean too has it already.
    """
    return _CrossEntropy.apply(logits, probability, bins, *targets)


def two_hot_mean(probability: Tensor, bins: Tensor) -> Tensor:
    """The expected value (...). Bins are paired with their mirror images: equal chances give exactly 0."""
    half = len(bins) // 2
    difference = probability[..., -half:] - probability[..., :half].flip(-1)
    return difference @ bins[-half:]
