"""Layers of world models: linear with RMS norm and SiLU, and a GRU with block-diagonal recurrent weights.

Weights start truncated normal with variance 1 / fan-in, biases at 0 (Hafner et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie.nets.backend_module import BackendModule
from reverie.nets.one_hot import Features, Linear
from reverie.nets.precision import widened

NORM_EPSILON = 1e-4
_TRUNCATION = 1.1368
"""Brings a normal variable that is truncated at two standard deviations back to a standard deviation of 1."""


def truncated_normal(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    """Fill a weight in place."""
    nn.init.trunc_normal_(weight, std=1.0, a=-2, b=2)
    weight.data.mul_(scale * _TRUNCATION / math.sqrt(fan_in))


def make_linear(inputs: int, outputs: int, scale: float = 1.0) -> Linear:
    """A linear layer whose initial weights are multiplied by ``scale``; 0 makes its first outputs zero."""
    layer: Linear = nn.utils.skip_init(Linear, inputs, outputs, device=torch.get_default_device())
    truncated_normal(layer.weight, inputs, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Projection(BackendModule):
    """A linear layer without bias, one term of a sum. ``fan_in`` is that of the whole sum."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, inputs: int, outputs: int, fan_in: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        truncated_normal(self.weight, fan_in)

    def forward(self, x: Tensor) -> Tensor:
        return self.matmul.linear(x, self.weight)


def inverse_rms(x: Tensor) -> Tensor:
    """The factor (..., 1) of an RMS norm over the last axis."""
    square: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return square.div_(x.shape[-1]).add_(NORM_EPSILON).rsqrt_()


class _NormedSiLU(torch.autograd.Function):
    """Norm and activation in one function: torch alone needs twice as many passes over memory, in both directions.

    Sums are in float32; saved tensors and outputs have the input's dtype. Overwrites its input, so the operation that
    made the input must not need it for its own backward pass. Matmuls, convolutions and sums do not.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        normed = widened(x)
        inverse = inverse_rms(normed)
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
        radial = (product @ scale).unsqueeze(-1) / len(scale)  # the component that the norm removes
        input_grad = inner.mul_(scale).addcmul_(normed, radial, value=-1).mul_(inverse)
        return input_grad.to(kept.dtype), product.flatten(0, -2).sum(0)


class NormedSiLU(nn.Module):
    """RMS norm over the last axis, then SiLU. Overwrites its input, which must not be used afterwards."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            y: Tensor = _NormedSiLU.apply(x, self.scale)
            return y
        wide = widened(x)
        return F.silu(wide.mul_(inverse_rms(wide)).mul_(self.scale), inplace=True).to(x.dtype)


class Dense(nn.Module):
    """Linear layer, norm and activation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = make_linear(inputs, outputs)
        self.finish = NormedSiLU(outputs)

    def forward(self, x: Features) -> Tensor:
        return self.finish(self.linear(x))


def make_dense(inputs: int, units: int, layers: int) -> nn.Sequential:
    """A chain of ``layers`` :class:`Dense` layers, each ``units`` wide."""
    return nn.Sequential(*(Dense(inputs if number == 0 else units, units) for number in range(layers)))


class BlockLinear(nn.Module):
    """A linear layer with a block-diagonal weight: each block of the output depends on one block of the input.

    The weight is stored as (blocks, in, out), so that all blocks are one batched matmul.
    """

    def __init__(self, blocks: int, inputs: int, outputs: int, fan_in: int = 0) -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks, inputs // blocks, outputs // blocks))
        self.bias = nn.Parameter(torch.zeros(outputs))
        truncated_normal(self.weight, fan_in or inputs)

    def blockwise(self, x: Tensor) -> Tensor:
        """(N, inputs) to (blocks, N, outputs / blocks), without the bias."""
        return torch.bmm(x.unflatten(-1, (self.blocks, -1)).transpose(0, 1), self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.blockwise(x).transpose(0, 1).flatten(1) + self.bias


class BlockGRU(nn.Module):
    """A GRU cell whose recurrent weights are block-diagonal.

    Every block also gets the same ``shared`` input. Other implementations copy it for each block; here it is projected
    once for all blocks, which gives the same sum.
    """

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, width: int, shared: int, blocks: int) -> None:
        super().__init__()
        fan_in = width + blocks * shared
        self.own = BlockLinear(blocks, width, width, fan_in)
        self.shared = Projection(shared, width, fan_in)
        self.hidden = NormedSiLU(width)
        self.gates = BlockLinear(blocks, width, 3 * width)

    def forward(self, state: Tensor, shared: Tensor) -> Tensor:
        """The next state (N, width) from the state and the projected input ``self.shared(x)`` (N, width)."""
        hidden = self.hidden(self.own(state) + shared)
        gates = self.gates.blockwise(hidden) + self.gates.bias.unflatten(0, (self.own.blocks, 1, -1))
        reset, candidate, update = gates.chunk(3, -1)  # (blocks, N, width / blocks) each
        # tanh(x) = 2 sigmoid(2x) - 1: torch's tanh took 3.5 times as long as its sigmoid.
        candidate = torch.sigmoid(2 * torch.sigmoid(reset) * candidate) * 2 - 1
        before = state.unflatten(-1, (self.own.blocks, -1)).transpose(0, 1)
        after = torch.lerp(before, candidate, torch.sigmoid(update - 1))
        return after.transpose(0, 1).flatten(1)
