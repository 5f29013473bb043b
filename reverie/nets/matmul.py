"""Products of matrices, by what the run multiplies with (``backend.products``) and in its precision.

torch leaves products to MKL, which uses half the width of AMD's newer processors. oneDNN, which torch has for its
convolutions, uses all of it: products of 1024 x 1024 ran at 270 instead of 120 GFLOP/s on one core. It is reached by an
operation that torch keeps for its compiler. Calling it costs a few microseconds more, so small products stay torch's.

:func:`affine`, :func:`add_product` and :func:`multiply` are for loops with gradients of their own, or without any. They
are out of autocast's reach: weights that :mod:`.precision` has rounded are multiplied in bfloat16 here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie import backend

SMALLEST = 2**21
"""Multiplications from which oneDNN is worth its call."""
THINNEST = 8
"""Below so many rows, columns or terms a product is more reading than multiplying."""


class Linear(nn.Linear):
    """A linear layer that multiplies by what the run has chosen."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What torch's function of this name does, for a weight (outputs, inputs)."""
    if x.shape[-1] != weight.shape[1] or not _is_for_onednn(x, weight):  # torch says better what does not fit
        return F.linear(x, weight, bias)
    flat = x.flatten(0, -2)
    y: Tensor = _Linear.apply(flat, weight, bias) if torch.is_grad_enabled() else _onednn(flat, weight.t(), bias)
    return y.unflatten(0, x.shape[:-1])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        to_x, to_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if to_weight else None, weight if to_x else None)
        return _onednn(x, weight.t(), bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight) if to_x else None,
            multiply(gradient.t(), x) if to_weight else None,
            gradient.sum(0) if to_bias else None,
        )


def affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """``bias + x weight`` for matrices or batches of them, in the precision of ``bias``: (N,) or (batch, 1, N)."""
    if x.dtype != weight.dtype:
        return torch.add(_rounded_product(x, weight), bias, out=out)
    if not _is_for_onednn(x, weight):
        return (torch.addmm if x.ndim == 2 else torch.baddbmm)(bias, x, weight, out=out)
    if x.ndim == 2:
        return _put(_onednn(x, weight, bias), out)
    return _put_each([_onednn(*each) for each in zip(x, weight, bias.squeeze(1), strict=True)], out)


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add ``x weight`` to ``total`` in place."""
    if x.dtype != weight.dtype:
        return total.add_(_rounded_product(x, weight))
    if not _is_for_onednn(x, weight):
        return total.addmm_(x, weight) if x.ndim == 2 else total.baddbmm_(x, weight)
    if x.ndim == 2:
        return total.add_(_onednn(x, weight))
    for place, *each in zip(total, x, weight, strict=True):
        place.add_(_onednn(*each))
    return total


def multiply(x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """``x weight`` for matrices or batches of them, in the precision of ``x``."""
    if x.dtype != weight.dtype:
        return _put(_rounded_product(x, weight).to(x.dtype), out)
    if not _is_for_onednn(x, weight):
        return (torch.mm if x.ndim == 2 else torch.bmm)(x, weight, out=out)
    if x.ndim == 2:
        return _put(_onednn(x, weight), out)
    return _put_each([_onednn(*each) for each in zip(x, weight, strict=True)], out)


def dense(weight: Tensor) -> Tensor:
    """A weight, which may be a part of a wider one, as repeated products with it should have it."""
    return weight.contiguous() if backend.products() == "onednn" else weight


def _put(product: Tensor, out: Tensor | None) -> Tensor:
    return product if out is None else out.copy_(product)


def _put_each(products: list[Tensor], out: Tensor | None) -> Tensor:
    """Matrices as a batch."""
    if out is None:
        return torch.stack(products)
    for place, product in zip(out, products, strict=True):
        place.copy_(product)
    return out


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether ``x weight``, or each product of a batch, is a big one; the weight may also be given turned round."""
    if backend.products() != "onednn" or x.dtype is not torch.float32:
        return False
    rows = x.shape[-2] if weight.ndim == 3 else x.numel() // max(x.shape[-1], 1)
    sizes = (rows, *weight.shape[-2:])
    return min(sizes) >= THINNEST and math.prod(sizes) >= SMALLEST


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``bias + x weight`` for matrices, without gradient."""
    assert not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)), "use linear()"
    if bias is not None:
        bias = bias.contiguous()  # it would be read as if it were
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()  # of columns of a wider one it would take the slow form that is kept for tests
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight.t(), bias, "none", [], "")
    return product


def _rounded_product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x.to(weight.dtype), weight)
