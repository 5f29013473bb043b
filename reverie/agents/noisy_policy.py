"""The policy of TD-MPC: tanh of a network's output, with clipped normal noise of a fixed standard deviation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from reverie.nets.distributions import NoisyTanh
from reverie.nets.elu_blocks import EluMLP


class NoisyPolicy(nn.Module):
    """Latents (N, L) to a distribution over actions (N, *shape)."""

    __call__: Callable[..., NoisyTanh]  # torch says Any

    def __init__(self, latent: int, units: int, shape: tuple[int, ...], std: float, clip: float) -> None:
        super().__init__()
        self.shape, self.std, self.clip = shape, std, clip
        self.layers = EluMLP(latent, units, math.prod(shape))

    def forward(self, latent: Tensor) -> NoisyTanh:
        return NoisyTanh(torch.tanh(self.layers(latent)), self.std, self.clip, self.shape)
