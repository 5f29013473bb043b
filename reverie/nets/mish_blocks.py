"""Layers of TD-MPC2: linear with layer norm and Mish, or with layer norm and SimNorm.

Weights start truncated normal with standard deviation 0.02, biases at 0 (Hansen et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from reverie.functional.mish import layer_norm, normed_mish
from reverie.functional.simnorm import simnorm
from reverie.nets.layers import Linear, linear_shared

WEIGHT_STD = 0.02


def make_linear(inputs: int, outputs: int, zero: bool = False) -> Linear:
    """A linear layer with the initial weights of TD-MPC2; ``zero`` makes its first outputs zero."""
    layer: Linear = nn.utils.skip_init(Linear, inputs, outputs, device=torch.get_default_device())
    if zero:
        nn.init.zeros_(layer.weight)
    else:
        nn.init.trunc_normal_(layer.weight, std=WEIGHT_STD)
    nn.init.zeros_(layer.bias)
    return layer


class MishDense(nn.Module):
    """Linear layer, layer norm, Mish."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = make_linear(inputs, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self.linear(x))

    def finish(self, x: Tensor) -> Tensor:
        """Norm and activation."""
        return normed_mish(x, self.scale, self.shift)


class SimNormDense(nn.Module):
    """Linear layer (left out if ``inputs`` is 0), layer norm, SimNorm."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, inputs: int, outputs: int, group: int) -> None:
        super().__init__()
        self.group = group
        self.linear = make_linear(inputs, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return simnorm(layer_norm(self.linear(x), self.scale, self.shift), self.group)


class MishMLP(nn.Module):
    """Two layers of ``units`` and an output layer: linear, or a SimNorm over groups of ``group``."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(
        self, inputs: int, units: int, outputs: int, *, start: Literal["normal", "zero"] = "normal", group: int = 0
    ) -> None:
        super().__init__()
        self.first = MishDense(inputs, units)
        self.second = MishDense(units, units)
        self.output: Linear | SimNormDense
        if group:
            self.output = SimNormDense(units, outputs, group)
        else:
            self.output = make_linear(units, outputs, zero=start == "zero")

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.second(self.first(x)))

    def forward_shared(self, shared: Tensor, own: Tensor) -> Tensor:
        """Like ``forward`` for inputs whose first columns ``shared`` (N, S) are equal within groups of C rows."""
        return self.output(self.second(self.first.finish(linear_shared(self.first.linear, shared, own))))
