"""The policy of TD-MPC2, a normal distribution squashed by tanh. It proposes plans, and can act alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from reverie.nets.distributions import LOG_TWO_PI, TanhGaussian
from reverie.nets.mish_blocks import MishMLP

_LOG_STD = (-10.0, 2.0)


class PolicyPrior(nn.Module):
    """Latents (N, L) to a distribution over actions (N, *shape)."""

    __call__: Callable[..., TanhGaussian]  # torch says Any

    def __init__(self, latent: int, units: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.layers = MishMLP(latent, units, 2 * math.prod(shape))

    def forward(self, latent: Tensor) -> TanhGaussian:
        mean, spread = self.layers(latent).chunk(2, -1)
        low, high = _LOG_STD
        return TanhGaussian(mean, low + 0.5 * (high - low) * (torch.tanh(spread) + 1), self.shape)


def scaled_entropy(log_std: Tensor, noise: Tensor) -> Tensor:
    """The reference's estimate (...) of the entropy: minus the log-density of a sample before tanh, times A."""
    density = -0.5 * noise.square() - log_std - 0.5 * LOG_TWO_PI
    return -log_std.shape[-1] * density.sum(-1)
