"""Vectors of categorical variables as latents: sampling with gradients, and how far two of them are apart.

Probabilities have the shape (..., K, S): S variables of K classes. Classes come first because there are few of them:
softmax over the last axis took 16 times as long with 4 classes and 32 variables.

Hafner et al. 2021, "Mastering Atari with Discrete World Models", and 2023 for the uniform mix and free nats.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mix_uniform(logits: Tensor, share: float) -> Tensor:
    """Probabilities that are never 0: ``share`` of them is uniform, so that no divergence blows up."""
    return logits.softmax(-2) * (1 - share) + share / logits.shape[-2]


def log_mix_uniform(logits: Tensor, share: float) -> Tensor:
    """Logarithms of :func:`mix_uniform`; without a mix they stay right where the probabilities would round to 0."""
    return mix_uniform(logits, share).log() if share else logits.log_softmax(-2)


def draw_one_hot(probability: Tensor, uniform: Tensor) -> Tensor:
    """Samples (..., K, S) for numbers (..., S) from [0, 1), by the inverse of the distribution function.

    A class is drawn where the noise is at or above its lower edge but not its upper one.
    """
    *leading, classes, variables = probability.shape
    is_above = probability.new_zeros(*leading, classes + 1, variables)
    is_above[..., 0, :] = 1
    torch.le(_upper_edges(probability[..., :-1, :]), uniform.unsqueeze(-2), out=is_above[..., 1:-1, :])
    return is_above[..., :-1, :] - is_above[..., 1:, :]


def _upper_edges(probability: Tensor) -> Tensor:
    """Running sums over the classes. On CUDA torch has no cumsum of floats that is the same every time."""
    if not probability.is_cuda:
        return probability.cumsum(-2)
    classes = probability.shape[-2]
    return torch.ones(classes, classes, device=probability.device).tril() @ probability


def one_hot(index: Tensor, classes: int) -> Tensor:
    """Indices (..., S) as (..., K, S) with a 1 at the class of each; zeros for one that is no class."""
    return (index.unsqueeze(-2) == torch.arange(classes, device=index.device).unsqueeze(-1)).float()


def straight_through(sample: Tensor, probability: Tensor) -> Tensor:
    """The sample as it is, with the gradient of the probabilities."""
    return sample + (probability - probability.detach())


def entropy(probability: Tensor) -> Tensor:
    """Entropy in nats (...), summed over the variables."""
    return -(probability * _finite_log(probability)).sum((-2, -1))


def split_divergence(posterior: Tensor, log_prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """Kullback-Leibler divergence in nats (...), summed over the variables: once to pull the prior, once the posterior.

    Neither pulls below ``free_nats``. The prior comes as logarithms (:func:`log_mix_uniform`): if the probability of a
    class rounds to 0, the divergence is still finite and has a gradient.
    """
    log_posterior = _finite_log(posterior)
    dynamics = (posterior.detach() * (log_posterior.detach() - log_prior)).sum((-2, -1))
    representation = (posterior * (log_posterior - log_prior.detach())).sum((-2, -1))
    return dynamics.clamp(min=free_nats), representation.clamp(min=free_nats)


def _finite_log(probability: Tensor) -> Tensor:
    """For products with the probability itself: 0 times the logarithm of 0 must be 0, not NaN."""
    return probability.clamp(min=torch.finfo(probability.dtype).tiny).log()
