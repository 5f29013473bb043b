"""The two Q-functions of TD-MPC, with one set of stacked weights: a layer with norm and tanh, one with ELU, a number.

Both start at value 0 (Hansen et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie.functional.mish import layer_norm
from reverie.nets.q_ensemble import StackedLinear

COUNT = 2


class TwinValues(nn.Module):
    """Latents and actions (N, inputs) to values (2, N)."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.first, self.second = StackedLinear(COUNT, inputs, units), StackedLinear(COUNT, units, units)
        self.output = StackedLinear(COUNT, units, 1, zero=True)
        self.scale = nn.Parameter(torch.ones(COUNT, 1, units))
        self.shift = nn.Parameter(torch.zeros(COUNT, 1, units))
        for layer in (self.first, self.second):
            for weight in layer.weight.data:
                nn.init.orthogonal_(weight)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(layer_norm(self.first(x.expand(COUNT, *x.shape)), self.scale, self.shift))
        return self.output(F.elu(self.second(hidden))).squeeze(-1)

    def sample_pair(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Always both."""
        return (0, 1)
