"""Several networks of one shape, computed with one batched matmul per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie.nets.layers import Initialiser, initialise, make_activation


class EnsembleLinear(nn.Module):
    """``count`` linear layers: (count, B, inputs) to (count, B, outputs)."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)  # torch's own range for linear layers
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleNorm(nn.Module):
    """``count`` layer or RMS norms over the last axis, each with its own scale (layer norm: and shift)."""

    def __init__(self, count: int, width: int, kind: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(count, 1, width))
        self.shift = nn.Parameter(torch.zeros(count, 1, width)) if kind == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.shift is None:
            return F.rms_norm(x, x.shape[-1:]) * self.scale
        return F.layer_norm(x, x.shape[-1:]) * self.scale + self.shift


class EnsembleMLP(nn.Module):
    """``count`` fully connected networks over the same input: (B, inputs) to (count, B, outputs)."""

    def __init__(
        self, count: int, inputs: int, units: Sequence[int], outputs: int, activation: str, norm: str = "none"
    ) -> None:
        super().__init__()
        self.count = count
        layers: list[nn.Module] = []
        for size in units:
            layers.append(EnsembleLinear(count, inputs, size))
            if norm != "none":
                layers.append(EnsembleNorm(count, size, norm))
            layers.append(make_activation(activation))
            inputs = size
        self.layers = nn.Sequential(*layers, EnsembleLinear(count, inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x.expand(self.count, *x.shape))
        return outputs

    @torch.no_grad()
    def initialise(self, how: Initialiser) -> None:
        """Initialise the hidden layers of every member. ``torch`` leaves them unchanged."""
        if how == "torch":
            return
        for layer in list(self.layers)[:-1]:
            if isinstance(layer, EnsembleLinear):
                for weight, bias in zip(layer.weight, layer.bias, strict=True):
                    member = nn.Linear(*weight.shape)
                    initialise(member, how)
                    weight.copy_(member.weight.T)
                    bias.copy_(member.bias)
