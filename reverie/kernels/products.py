"""Matrix products by the libraries that a CPU has: numpy's BLAS, torch's own, and oneDNN.

Which one is fastest depends on the processor and on the sizes. Only big products leave the default library, because a
call of another one costs a few microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array

MIN_MULTIPLICATIONS = 2**21
"""From here on another library is worth its call."""
MIN_SIZE = 8
"""With fewer rows, columns or terms a matmul is more reading than multiplying."""

ArrayMatmul = Callable[..., Array]
"""Like ``numpy.matmul``: two arrays and optionally ``out``."""


def has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_big(*sizes: int) -> bool:
    """Whether a product of so many rows, terms and columns may go to another library."""
    return min(sizes) >= MIN_SIZE and math.prod(sizes) >= MIN_MULTIPLICATIONS


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``bias + x weight`` for matrices, without gradient, by an operation that torch keeps for its compiler."""
    if bias is not None:
        bias = bias.contiguous()  # oneDNN would read it as if it were
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()  # for a slice of columns oneDNN would use its slow reference code
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight.t(), bias, "none", [], "")
    return product


def array_matmul(library: str) -> ArrayMatmul:
    """``numpy.matmul``, with big products by ``library``: numpy, torch or onednn."""
    libraries: dict[str, ArrayMatmul] = {"numpy": np.matmul, "torch": _by_torch, "onednn": _by_onednn}
    return libraries[library]


def _by_torch(x: Array, y: Array, out: Array | None = None) -> Array:
    return _multiply(lambda a, b, to: torch.mm(a, b, out=to), x, y, out)


def _by_onednn(x: Array, y: Array, out: Array | None = None) -> Array:
    return _multiply(lambda a, b, to: to.copy_(onednn_product(a, b)), x, y, out)


def _multiply(product: Callable[[Tensor, Tensor, Tensor], Any], x: Array, y: Array, out: Array | None) -> Array:
    """Matrices, or batches of them, one after another."""
    if not is_big(x.shape[-2], x.shape[-1], y.shape[-1]):
        return np.matmul(x, y, out=out)
    members = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if out is None:
        out = np.empty((*members, x.shape[-2], y.shape[-1]), np.float32)
    for index in np.ndindex(members):
        parts = [array[index] if array.ndim > 2 else array for array in (x, y, out)]
        _multiply_matrices(product, parts)
    return out


def _multiply_matrices(product: Callable[[Tensor, Tensor, Tensor], Any], arrays: list[Array]) -> None:
    product(*map(torch.from_numpy, arrays))
