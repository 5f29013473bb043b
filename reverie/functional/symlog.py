"""Scalars of any magnitude for networks: symlog, and two-hot targets over exponentially spaced bins.

Hafner et al. 2023, "Mastering Diverse Domains through World Models", Eq. 8 to 10. Bins are evenly spaced in symlog
space. A scalar becomes weights on the two bins around it, so that regression becomes classification and the magnitude
of a target does not change the magnitude of a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LARGEST_LOG = 20.0


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): 0 stays 0, and small numbers hardly change."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of :func:`symlog`."""
    return x.sign() * x.abs().expm1()


def symexp_bins(count: int) -> Tensor:
    """Bins (count,), exactly symmetric around 0. An odd count includes 0."""
    steps = (count + 1) // 2
    negative = symexp(torch.linspace(-_LARGEST_LOG, 0, steps))
    return torch.cat([negative, -negative.flip(0)[count % 2 :]])


def two_hot(target: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """The index of the bin below each target, and the weight of the bin above. Targets are clipped to the bins."""
    below = (torch.searchsorted(bins, target.contiguous(), right=True) - 1).clamp(0, len(bins) - 2)
    low, high = bins[below], bins[below + 1]
    return below, ((target - low) / (high - low)).clamp(0, 1)


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy with two-hot targets. Its gradient is the given softmax minus weights at two bins."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, probs: Tensor, bins: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
        log_total = logits.amax(-1) - probs.amax(-1).log()
        indices, weights, losses = [], [], []
        for target in targets:
            below, weight = two_hot(target, bins)
            indices.append(torch.stack([below, below + 1], -1))
            weights.append(torch.stack([1 - weight, weight], -1))
            losses.append(log_total - (logits.gather(-1, indices[-1]) * weights[-1]).sum(-1))
        ctx.save_for_backward(probs, *indices, *weights)
        return tuple(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        probs, *others = ctx.saved_tensors
        total = sum(gradients)
        assert isinstance(total, Tensor)  # there is a target
        result = probs * total.unsqueeze(-1)
        indices, weights = others[: len(gradients)], others[len(gradients) :]
        for gradient, index, weight in zip(gradients, indices, weights, strict=True):
            result.scatter_add_(-1, index, weight * -gradient.unsqueeze(-1))
        return result, None, None, *(None for _ in gradients)


def two_hot_losses(logits: Tensor, probs: Tensor, bins: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
    """Cross entropy (...) between logits (..., K) and each of several two-hot targets (...).

    ``probs`` is ``logits.softmax(-1)`` without gradient, passed in because callers also need it for the mean.
    """
    losses: tuple[Tensor, ...] = _CrossEntropy.apply(logits, probs, bins, *targets)
    return losses


def two_hot_mean(probs: Tensor, bins: Tensor) -> Tensor:
    """The expected value (...). Each bin is paired with its mirror image, so uniform probabilities give exactly 0."""
    half = len(bins) // 2
    difference = probs[..., -half:] - probs[..., :half].flip(-1)
    return difference @ bins[-half:]
