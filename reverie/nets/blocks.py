"""Layers of world models: linear, RMS norm and SiLU in one, and a recurrent cell with a block-diagonal core.

Initial weights are truncated normal with the variance 1 / fan-in, biases 0 (Hafner et al. 2023).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie.nets.choices import Features, Linear
from reverie.nets.matmul import linear
from reverie.nets.precision import widened

NORM_EPSILON = 1e-4
_TRUNCATION = 1.1368
"""A normal variable cut at two deviations, times this, has the deviation 1 again."""


def truncated_normal(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    """Fill a weight in place."""
    nn.init.trunc_normal_(weight, std=1.0, a=-2, b=2)
    weight.data.mul_(scale * _TRUNCATION / math.sqrt(fan_in))


def make_linear(inputs: int, outputs: int, scale: float = 1.0) -> Linear:
    """A linear layer whose first outputs are of the size ``scale``; 0 starts it at zero."""
    layer: Linear = nn.utils.skip_init(Linear, inputs, outputs, device=torch.get_default_device())
    truncated_normal(layer.weight, inputs, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Projection(nn.Module):
    """A linear layer without bias, for a sum that has one already; it may be given a part of the whole fan-in."""

    def __init__(self, inputs: int, outputs: int, fan_in: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        truncated_normal(self.weight, fan_in)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)


def inverse_size(x: Tensor) -> Tensor:
    """What a norm multiplies with: (..., 1)."""
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return square.div_(x.shape[-1]).add_(NORM_EPSILON).rsqrt_()


class _NormedSiLU(torch.autograd.Function):
    """torch takes a norm and an activation apart into twice as many passes over memory, forwards and backwards.

    Sums are in float32; what is kept and given back is of the input's kind. The input's memory is used up: what made it
    may not need it any more on the way back, as products, convolutions and sums do not.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        normed = widened(x)
        inverse = inverse_size(normed)
        normed.mul_(inverse)
        ctx.save_for_backward(normed.to(x.dtype), inverse, scale)
        return F.silu(normed * scale, inplace=True).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        kept, inverse, scale = ctx.saved_tensors
        normed = widened(kept)
        inner = normed * scale
        torch.ops.aten.silu_backward.grad_input(widened(gradient), inner, grad_input=inner)
        product = inner * normed
        along = (product @ scale).unsqueeze(-1) / len(scale)  # the part of it that the norm takes away
        to_input = inner.mul_(scale).addcmul_(normed, along, value=-1).mul_(inverse)
        return to_input.to(kept.dtype), product.flatten(0, -2).sum(0)


class NormedSiLU(nn.Module):
    """RMS norm over the last axis, then SiLU. Writes over its input, which nobody else may look at afterwards."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return _NormedSiLU.apply(x, self.scale)
        wide = widened(x)
        return F.silu(wide.mul_(inverse_size(wide)).mul_(self.scale), inplace=True).to(x.dtype)


class Dense(nn.Module):
    """Linear layer, norm and activation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = make_linear(inputs, outputs)
        self.finish = NormedSiLU(outputs)

    def forward(self, x: Features) -> Tensor:
        return self.finish(self.linear(x))


def make_dense(inputs: int, units: int, layers: int) -> nn.Sequential:
    """``layers`` of them, all ``units`` wide."""
    return nn.Sequential(*(Dense(inputs if number == 0 else units, units) for number in range(layers)))


class BlockLinear(nn.Module):
    """A linear layer whose weight is block-diagonal: each block of the input sees one block of the output.

    The weight is stored (blocks, in, out), so that all blocks are one batched product.
    """

    def __init__(self, blocks: int, inputs: int, outputs: int, fan_in: int = 0) -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks, inputs // blocks, outputs // blocks))
        self.bias = nn.Parameter(torch.zeros(outputs))
        truncated_normal(self.weight, fan_in or inputs)

    def blockwise(self, x: Tensor) -> Tensor:
        """(N, inputs) as (blocks, N, outputs / blocks), without the bias."""
        return torch.bmm(x.unflatten(-1, (self.blocks, -1)).transpose(0, 1), self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.blockwise(x).transpose(0, 1).flatten(1) + self.bias


class BlockGRU(nn.Module):
    """A gated recurrent cell in which the big state only talks to itself within blocks.

    Every block also sees the same ``shared`` input. Usually that is copied for each block; here it is projected once
    for all of them, which is the same sum.
    """

    def __init__(self, width: int, shared: int, blocks: int) -> None:
        super().__init__()
        fan_in = width + blocks * shared
        self.own = BlockLinear(blocks, width, width, fan_in)
        self.shared = Projection(shared, width, fan_in)
        self.hidden = NormedSiLU(width)
        self.gates = BlockLinear(blocks, width, 3 * width)

    def forward(self, state: Tensor, shared: Tensor) -> Tensor:
        """The next state (N, width) from the state and its projected input ``self.shared(x)`` (N, width)."""
        hidden = self.hidden(self.own(state) + shared)
        gates = self.gates.blockwise(hidden) + self.gates.bias.unflatten(0, (self.own.blocks, 1, -1))
        reset, candidate, update = gates.chunk(3, -1)  # (blocks, N, width / blocks) each
        # tanh(x) = 2 sigmoid(2x) - 1: torch's tanh took 3.5 times as long as its sigmoid.
        candidate = torch.sigmoid(2 * torch.sigmoid(reset) * candidate) * 2 - 1
        before = state.unflatten(-1, (self.own.blocks, -1)).transpose(0, 1)
        after = torch.lerp(before, candidate, torch.sigmoid(update - 1))
        return after.transpose(0, 1).flatten(1)
