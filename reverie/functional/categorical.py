"""Vectors of categorical latent variables: sampling, straight-through gradients, KL divergence.

Probabilities have the shape (..., K, S): S variables of K classes. The classes come first because softmax over a short
last axis is slow: 16 times as long with 4 classes and 32 variables.

Hafner et al. 2021, "Mastering Atari with Discrete World Models"; 2023 for the uniform mix and free nats.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mix_uniform(logits: Tensor, unimix: float) -> Tensor:
    """Softmax mixed with ``unimix`` of the uniform distribution: no probability is 0, so KL divergences are finite."""
    return logits.softmax(-2) * (1 - unimix) + unimix / logits.shape[-2]


def log_mix_uniform(logits: Tensor, unimix: float) -> Tensor:
    """Logarithm of :func:`mix_uniform`. With ``unimix`` 0 it is accurate where probabilities round to 0."""
    return mix_uniform(logits, unimix).log() if unimix else logits.log_softmax(-2)


def sample_one_hot(probs: Tensor, uniform: Tensor) -> Tensor:
    """One-hot samples (..., K, S) for uniform noise (..., S) in [0, 1), by inverting the cumulative distribution.

    The sampled class is the one with lower edge <= noise < upper edge.
    """
    *leading, classes, variables = probs.shape
    is_above = probs.new_zeros(*leading, classes + 1, variables)
    is_above[..., 0, :] = 1
    torch.le(_upper_edges(probs[..., :-1, :]), uniform.unsqueeze(-2), out=is_above[..., 1:-1, :])
    return is_above[..., :-1, :] - is_above[..., 1:, :]


def _upper_edges(probs: Tensor) -> Tensor:
    """Cumulative sums over the classes. On CUDA as a matmul, because torch's cumsum is not deterministic there."""
    if not probs.is_cuda:
        return probs.cumsum(-2)
    classes = probs.shape[-2]
    return torch.ones(classes, classes, device=probs.device).tril() @ probs


def one_hot(index: Tensor, classes: int) -> Tensor:
    """Indices (..., S) to one-hot vectors (..., K, S). An index outside the classes gives zeros."""
    return (index.unsqueeze(-2) == torch.arange(classes, device=index.device).unsqueeze(-1)).float()


def straight_through(sample: Tensor, probs: Tensor) -> Tensor:
    """The sample with the gradient of the probabilities."""
    return sample + (probs - probs.detach())


def entropy(probs: Tensor) -> Tensor:
    """Entropy in nats (...), summed over the variables."""
    return -(probs * _finite_log(probs)).sum((-2, -1))


def kl_losses(posterior: Tensor, log_prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """KL(posterior, prior) in nats (...), summed over the variables, twice: Hafner et al. 2023, Eq. 3.

    The first (dynamics loss) trains the prior, the second (representation loss) the posterior. Both are clipped at
    ``free_nats``, below which they have no gradient. The prior is given as logarithms (:func:`log_mix_uniform`), so
    that the divergence is finite and has a gradient even if a probability rounds to 0.
    """
    log_posterior = _finite_log(posterior)
    dynamics = (posterior.detach() * (log_posterior.detach() - log_prior)).sum((-2, -1))
    representation = (posterior * (log_posterior - log_prior.detach())).sum((-2, -1))
    return dynamics.clamp(min=free_nats), representation.clamp(min=free_nats)


def _finite_log(probs: Tensor) -> Tensor:
    """For products p * log(p): 0 * log(0) must be 0, not NaN."""
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
