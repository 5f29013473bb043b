"""An ensemble of Q-functions with one set of stacked weights, computed with one batched matmul per layer.

Each is a distribution over bins in symlog space, and starts at value 0 (Hansen et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from reverie.core.types import Array
from reverie.functional.mish import normed_mish
from reverie.nets.backend_module import BackendModule
from reverie.nets.matmul import Matmul
from reverie.nets.mish_blocks import WEIGHT_STD

Members = Sequence[int] | None
"""Which Q-functions to compute; None: all."""


class StackedLinear(BackendModule):
    """``count`` linear layers: (count, N, inputs) to (count, N, outputs)."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, count: int, inputs: int, outputs: int, zero: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(count, 1, outputs))
        if not zero:
            nn.init.trunc_normal_(self.weight, std=WEIGHT_STD)

    def forward(self, x: Tensor, members: Members = None) -> Tensor:
        weight, bias = _take(self.weight, members), _take(self.bias, members)
        if not torch.is_grad_enabled():
            return self.matmul.affine(bias, x, weight)
        y: Tensor = _StackedProduct.apply(self.matmul, x, weight, bias)
        return y


class QEnsemble(nn.Module):
    """Latents and actions (N, inputs) to logits (Q, N, bins) of Q-functions with two hidden layers."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, count: int, inputs: int, units: int, bins: int, dropout: float) -> None:
        super().__init__()
        self.count, self.units, self.dropout = count, units, dropout
        self.first, self.second = StackedLinear(count, inputs, units), StackedLinear(count, units, units)
        self.output = StackedLinear(count, units, bins, zero=True)
        self.scales, self.shifts = (
            nn.ParameterList([nn.Parameter(torch.full((count, 1, units), value)) for _ in range(2)])
            for value in (1.0, 0.0)
        )

    def forward(self, x: Tensor, members: Members = None, dropped: Tensor | None = None) -> Tensor:
        """``dropped`` are positions in the first layer's flat output that are set to zero.

        The usual factor 1 / (1 - dropout) has no effect before a layer norm, and is left out.
        """
        count = self.count if members is None else len(members)
        hidden = self.first(x.expand(count, *x.shape), members)
        if dropped is not None:
            hidden = hidden.flatten().index_fill_(0, dropped, 0.0).view(hidden.shape)
        hidden = normed_mish(hidden, _take(self.scales[0], members), _take(self.shifts[0], members))
        hidden = self.second(hidden, members)
        hidden = normed_mish(hidden, _take(self.scales[1], members), _take(self.shifts[1], members))
        return self.output(hidden, members)

    def sample_dropped(self, rng: np.random.Generator, count: int, rows: int) -> Array:
        """Positions that dropout sets to zero in ``count`` first layers of ``rows`` rows."""
        return sample_positions(rng, count * rows * self.units, self.dropout)

    def sample_pair(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Two different members, or the only one."""
        return tuple(rng.choice(self.count, min(2, self.count), replace=False).tolist())


def sample_positions(rng: np.random.Generator, size: int, probability: float) -> Array:
    """Positions below ``size``, each with the same probability, independently, in order.

    Gaps between them are geometric. That draws few numbers where the probability is small.
    """
    if not probability:
        return np.empty(0, np.int64)
    positions = np.empty(0, np.int64)
    end = -1
    while end < size:
        gaps = rng.geometric(probability, max(16, int((size - end) * probability * 1.1)))
        positions = np.concatenate([positions, end + gaps.cumsum()])
        end = int(positions[-1])
    return positions[positions < size]


class _StackedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matmul: Matmul, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        _, x_needs_grad, weight_needs_grad, _ = ctx.needs_input_grad
        ctx.matmul = matmul
        ctx.save_for_backward(x if weight_needs_grad else None, weight if x_needs_grad else None)
        return matmul.affine(bias, x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return (
            None,
            None if weight is None else ctx.matmul.multiply(gradient, weight.transpose(1, 2)),
            None if x is None else ctx.matmul.multiply(x.transpose(1, 2), gradient),
            gradient.sum(1, keepdim=True) if ctx.needs_input_grad[3] else None,
        )


def _take(stacked: Tensor, members: Members) -> Tensor:
    if members is None or list(members) == list(range(len(stacked))):
        return stacked
    return stacked[list(members)]
