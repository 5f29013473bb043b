"""Networks that compute in bfloat16 where the run says so (``backend.precision``).

Only products and convolutions inside networks are rounded, as torch's autocast does it. Weights, what leaves a network
and everything that is made of it (samples, divergences, losses, returns) stay float32. So do norms, whose sums would
suffer most. Loops with gradients of their own are out of autocast's reach: they round their weights by
:func:`rounded` and multiply by the functions below, which with float32 weights are the one torch operation each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from reverie import backend

Method = TypeVar("Method", bound=Callable[..., Any])


def in_precision(method: Method) -> Method:
    """For a network's method: compute it in the run's precision; what it returns, a tensor or a dict, is float32."""

    @wraps(method)
    def compute(*arguments: Any) -> Any:
        if backend.precision() == "float32":
            return method(*arguments)
        with torch.autocast(backend.device().type, torch.bfloat16):
            result = method(*arguments)
        return {key: widened(part) for key, part in result.items()} if isinstance(result, dict) else widened(result)

    return compute  # type: ignore[return-value]


def widened(x: Tensor) -> Tensor:
    """float32 again, if it is bfloat16."""
    return x.float() if x.dtype is torch.bfloat16 else x


def rounded(weight: Tensor) -> Tensor:
    """A weight as products in the run's precision take it."""
    return weight if backend.precision() == "float32" else weight.bfloat16()


def affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """``bias + x weight`` for matrices or batches of them, in the precision of ``bias``."""
    if x.dtype == weight.dtype:
        return (torch.addmm if x.ndim == 2 else torch.baddbmm)(bias, x, weight, out=out)
    return torch.add(_product(x, weight), bias, out=out)


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add ``x weight`` to ``total`` in place."""
    if x.dtype == weight.dtype:
        return total.addmm_(x, weight) if x.ndim == 2 else total.baddbmm_(x, weight)
    return total.add_(_product(x, weight))


def multiply(x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """``x weight``, in the precision of ``x``."""
    if x.dtype == weight.dtype:
        return (torch.mm if x.ndim == 2 else torch.bmm)(x, weight, out=out)
    product = _product(x, weight)
    return product.to(x.dtype) if out is None else out.copy_(product)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x.to(weight.dtype), weight)
