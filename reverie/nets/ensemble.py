"""Several networks of one shape, computed side by side in one batched product per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reverie.nets.layers import make_activation


class EnsembleLinear(nn.Module):
    """``count`` linear layers: (count, B, inputs) to (count, B, outputs)."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)  # torch's own range for linear layers
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleMLP(nn.Module):
    """``count`` fully connected networks over the same input: (B, inputs) to (count, B, outputs)."""

    def __init__(self, count: int, inputs: int, units: Sequence[int], outputs: int, activation: str) -> None:
        super().__init__()
        self.count = count
        layers: list[nn.Module] = []
        for size in units:
            layers += [EnsembleLinear(count, inputs, size), make_activation(activation)]
            inputs = size
        self.layers = nn.Sequential(*layers, EnsembleLinear(count, inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.expand(self.count, *x.shape))
