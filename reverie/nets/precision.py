"""Networks that compute in bfloat16 where the run says so (``backend.precision``).

Only products and convolutions inside networks are rounded, as torch's autocast does it. Weights, what leaves a network
and everything that is made of it (samples, divergences, losses, returns) stay float32. So do norms, whose sums would
suffer most. Loops with gradients of their own are out of autocast's reach: they round their weights by
:func:`rounded` and multiply by the functions of :mod:`.products`.
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
