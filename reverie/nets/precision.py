"""Networks that compute in bfloat16 where the run says so (``backend.precision``).

Only matmuls and convolutions inside networks are rounded, as torch's autocast does it. Weights, the outputs of networks
and everything computed from them (samples, divergences, losses, returns) stay float32. So do norms, whose sums would
lose most. Autocast does not reach loops with gradients of their own: they use :class:`reverie.nets.matmul.Matmul`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from reverie.nets.backend_module import BackendModule

Method = TypeVar("Method", bound=Callable[..., Any])


def in_precision(method: Method) -> Method:
    """Compute a :class:`BackendModule`'s method in the backend's precision. It returns a float32 tensor, or a dict."""

    @wraps(method)
    def compute(module: BackendModule, *arguments: Any) -> Any:
        if module.backend.precision == "float32":
            return method(module, *arguments)
        with torch.autocast(module.backend.device.type, torch.bfloat16):
            result = method(module, *arguments)
        return {key: widened(value) for key, value in result.items()} if isinstance(result, dict) else widened(result)

    return compute  # type: ignore[return-value]


def widened(x: Tensor) -> Tensor:
    """float32 again, if it is bfloat16."""
    return x.float() if x.dtype is torch.bfloat16 else x
