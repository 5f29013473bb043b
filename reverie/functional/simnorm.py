"""Simplicial normalisation (SimNorm): every group of values becomes probabilities.

Hansen et al. 2024, "TD-MPC2: Scalable, Robust World Models for Continuous Control", with temperature 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reverie.functional.mish import LOG2_E

_LARGEST = 60.0
"""Inputs come from a layer norm. Any beyond this count as this, so that exponentials stay finite."""


def simnorm(x: Tensor, group: int) -> Tensor:
    """The softmax of each group of ``group`` neighbours along the last axis."""
    if not torch.is_grad_enabled():
        return _forward(x, group)
    y: Tensor = _SimNorm.apply(x, group)
    return y


class _SimNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: int) -> Tensor:
        y = _forward(x, group)
        ctx.save_for_backward(y)
        ctx.group = group
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        product = gradient * y
        total = _group_sums(product, ctx.group)
        return product.addcmul_(y, total.expand(*total.shape[:-1], ctx.group).reshape(y.shape), value=-1), None


def _forward(x: Tensor, group: int) -> Tensor:
    # torch's softmax over eight values took ten times as long.
    y = x.clamp(-_LARGEST, _LARGEST).mul_(LOG2_E).exp2_()
    probs: Tensor = y.unflatten(-1, (-1, group)).div_(_group_sums(y, group))
    return probs.view(x.shape)


def _group_sums(x: Tensor, group: int) -> Tensor:
    """(..., L) to (..., L / group, 1)."""
    grouped: Tensor = x.unflatten(-1, (-1, group))
    return grouped @ torch.ones(group, 1, dtype=x.dtype, device=x.device)
