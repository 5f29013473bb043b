"""Numbers of any size for networks: a symmetric logarithm, and scalars as weights on two bins.

Hafner et al. 2023, "Mastering Diverse Domains through World Models". Bins lie evenly in symlog space. A scalar is
the pair of bins around it, weighted by closeness, so that regression becomes classification and the size of a target
does not change the size of a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

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


def two_hot_loss(logits: Tensor, log_total: Tensor, target: Tensor, bins: Tensor) -> Tensor:
    """Cross entropy between logits (..., K) and two-hot targets (...).

    Only the two logits that a target weighs are looked at; ``log_total`` is ``logits.logsumexp(-1)``, which several
    targets can share.
    """
    below, share = two_hot(target, bins)
    pair = logits.gather(-1, torch.stack([below, below + 1], -1))
    return log_total - torch.lerp(pair[..., 0], pair[..., 1], share)


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """The expected value (...). Bins are paired with their mirror images: equal logits give exactly 0."""
    probability = logits.softmax(-1)
    half = len(bins) // 2
    difference = probability[..., -half:] - probability[..., :half].flip(-1)
    return difference @ bins[-half:]
