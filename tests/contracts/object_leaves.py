"""Every number, array and tensor that can be reached from an object, by its path: all that could be state."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel

IGNORED = {
    "machine_rules",  # of the monitor: about memory and time
    "_last",  # the recorder's stopwatch; and the copy of the last rows in a process vector, for crashes
    "_sent",  # shared memory for the actions of a process vector
    "meter",  # the recorder's measurements of the machine
    "env_seconds",  # the collector's stopwatch
    "sinks",
    "spec",  # Gymnasium's registration
    "_rows_by_step",
}
SKIPPED_TYPES = (str, bytes, type, types.ModuleType, types.FunctionType, types.MethodType, BaseModel, enum.Enum)


def object_leaves(root: Any, others: Iterable[Any] = ()) -> dict[str, str]:
    """``{path: content}`` for every leaf below ``root``, except below ``others``."""
    return dict(_walk(root, "", {id(other) for other in others if other is not root}))


def _walk(node: Any, path: str, seen: set[int]) -> Iterator[tuple[str, str]]:
    if node is None or isinstance(node, SKIPPED_TYPES) or (callable(node) and not hasattr(node, "__dict__")):
        return
    if isinstance(node, (np.generic, np.ndarray, torch.Tensor)) and node.ndim == 0:
        yield path, repr(node.item())  # numbers are equal whether they are Python, numpy or torch scalars
        return
    if isinstance(node, (bool, int, float, complex)):
        yield path, repr(node)
        return
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, np.ndarray):
        yield path, f"{node.dtype}{node.shape}" + (node.tobytes().hex() if node.dtype != object else "")
    elif isinstance(node, torch.Tensor):
        yield path, f"{node.dtype}{tuple(node.shape)}" + node.detach().cpu().contiguous().numpy().tobytes().hex()
        if node.grad is not None and not isinstance(node, torch.nn.Parameter):
            yield from _walk(node.grad, f"{path}.grad", seen)
    elif isinstance(node, np.random.Generator):
        yield path, repr(node.bit_generator.state)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key not in IGNORED:
                name = key if isinstance(key, (str, int)) else type(key).__name__
                yield from _walk(value, f"{path}/{name}", seen)
    elif isinstance(node, (list, tuple, set, frozenset)):
        for index, value in enumerate(node):
            yield from _walk(value, f"{path}/{index}", seen)
    elif hasattr(node, "__dict__"):
        yield from _walk(vars(node), path, seen)
