"""Matmuls by the library that the run has chosen (``backend.matmul``) and in its precision.

torch uses MKL, which uses half the width of AMD's newer processors. oneDNN, which torch has for its convolutions, uses
all of it: 1024 x 1024 matmuls ran at 270 instead of 120 GFLOP/s on one core. We reach it by an operation that torch
keeps for its compiler. A call costs a few microseconds more, so small matmuls stay with torch.

``affine``, ``add_product`` and ``multiply`` are for loops that compute their own gradients, or none. Autocast does not
reach those: they multiply in bfloat16 by weights that ``rounded`` has prepared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.kernels import products


@dataclass(frozen=True)
class Matmul:
    """How a network multiplies matrices."""

    library: str = "torch"
    """torch or onednn."""
    precision: str = "float32"
    """float32 or bfloat16."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Like torch's function of this name, for a weight (outputs, inputs)."""
        # torch has the better message for sizes that do not fit
        if x.shape[-1] != weight.shape[1] or not self._is_for_onednn(x, weight):
            return F.linear(x, weight, bias)
        flat = x.flatten(0, -2)
        has_gradient = torch.is_grad_enabled()
        y = _Linear.apply(self, flat, weight, bias) if has_gradient else _onednn(flat, weight.t(), bias)
        unflattened: Tensor = y.unflatten(0, x.shape[:-1])
        return unflattened

    def affine(self, bias: Tensor, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """``bias + x weight`` for matrices or batches of them, in the precision of ``bias``: (N,) or (batch, 1, N)."""
        if x.dtype != weight.dtype:
            return torch.add(_rounded_product(x, weight), bias, out=out)
        if not self._is_for_onednn(x, weight):
            return (torch.addmm if x.ndim == 2 else torch.baddbmm)(bias, x, weight, out=out)
        if x.ndim == 2:
            return _put(_onednn(x, weight, bias), out)
        return _put_each([_onednn(*each) for each in zip(x, weight, bias.squeeze(1), strict=True)], out)

    def add_product(self, total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Add ``x weight`` to ``total`` in place."""
        if x.dtype != weight.dtype:
            return total.add_(_rounded_product(x, weight))
        if not self._is_for_onednn(x, weight):
            return total.addmm_(x, weight) if x.ndim == 2 else total.baddbmm_(x, weight)
        if x.ndim == 2:
            return total.add_(_onednn(x, weight))
        for sum_, *each in zip(total, x, weight, strict=True):
            sum_.add_(_onednn(*each))
        return total

    def multiply(self, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """``x weight`` for matrices or batches of them, in the precision of ``x``."""
        if x.dtype != weight.dtype:
            return _put(_rounded_product(x, weight).to(x.dtype), out)
        if not self._is_for_onednn(x, weight):
            return (torch.mm if x.ndim == 2 else torch.bmm)(x, weight, out=out)
        if x.ndim == 2:
            return _put(_onednn(x, weight), out)
        return _put_each([_onednn(*each) for each in zip(x, weight, strict=True)], out)

    def rounded(self, weight: Tensor) -> Tensor:
        """A weight in the precision of matmuls."""
        return weight if self.precision == "float32" else weight.bfloat16()

    def prepared(self, weight: Tensor) -> Tensor:
        """A weight for repeated matmuls: rounded, and contiguous where the library needs it."""
        weight = self.rounded(weight)
        return weight.contiguous() if self.library == "onednn" else weight

    def _is_for_onednn(self, x: Tensor, weight: Tensor) -> bool:
        """Whether ``x weight``, or each matmul of a batch, is a big one. The weight may also be transposed."""
        if self.library != "onednn" or x.dtype is not torch.float32:
            return False
        rows = x.shape[-2] if weight.ndim == 3 else x.numel() // max(x.shape[-1], 1)
        return products.is_big(rows, *weight.shape[-2:])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matmul: Matmul, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        _, x_needs_grad, weight_needs_grad, _ = ctx.needs_input_grad
        ctx.matmul = matmul
        ctx.save_for_backward(x if weight_needs_grad else None, weight if x_needs_grad else None)
        return _onednn(x, weight.t(), bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        _, x_needs_grad, weight_needs_grad, bias_needs_grad = ctx.needs_input_grad
        return (
            None,
            ctx.matmul.multiply(gradient, weight) if x_needs_grad else None,
            ctx.matmul.multiply(gradient.t(), x) if weight_needs_grad else None,
            gradient.sum(0) if bias_needs_grad else None,
        )


def _put(product: Tensor, out: Tensor | None) -> Tensor:
    return product if out is None else out.copy_(product)


def _put_each(products: list[Tensor], out: Tensor | None) -> Tensor:
    """Matrices as a batch."""
    if out is None:
        return torch.stack(products)
    for target, product in zip(out, products, strict=True):
        target.copy_(product)
    return out


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)), "use Matmul.linear"
    return products.onednn_product(x, weight, bias)


def _rounded_product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x.to(weight.dtype), weight)
