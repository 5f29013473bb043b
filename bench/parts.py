"""Where the time of an update goes: CPU milliseconds per part, and what the part's matmuls alone would take.

A part is a function that the update calls. Its time is its own, without that of parts it calls. Its matmuls are
recorded during one update and run again alone, with the same sizes and strides. So three times can be told apart: the
matmuls at the rate of a big one, the matmuls as they are, and everything else (norms, activations, samples, copies).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

Owner = tuple[Any, str]
"""A class or module, and the name of a function in it."""


def _flops_of_matmul(total: torch.Size, x: torch.Size, weight: torch.Size, **_: Any) -> int:
    return 2 * prod(x) * weight[-1]


def _flops_of_linear(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
    return 2 * prod(x) * weight[0]


aten = torch.ops.aten
FLOPS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    aten.addmm_: shape_wrapper(_flops_of_matmul), aten.baddbmm_: shape_wrapper(_flops_of_matmul),
    torch.ops.mkldnn._linear_pointwise: shape_wrapper(_flops_of_linear),
}  # fmt: skip
"""Matmuls and convolutions. Torch's own table misses matmuls in place and those of oneDNN."""
SECONDS = 0.01
"""CPU time for each distinct matmul that is run again."""


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of a tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]

    def tensor(self) -> Tensor:
        return torch.empty_strided(self.size, self.stride).uniform_(-1, 1, generator=torch.Generator())


@dataclass(frozen=True)
class Call:
    """A matmul that can be run again. Tensors are replaced by their layouts."""

    function: Any
    arguments: tuple[Any, ...]

    flops: int

    def seconds(self) -> float:
        """CPU time of one call, alone and with warm caches."""
        given = [each.tensor() if isinstance(each, Layout) else each for each in self.arguments]
        self.function(*given)
        started, calls = time.process_time(), 0
        while time.process_time() - started < SECONDS:
            self.function(*given)
            calls += 1
        return (time.process_time() - started) / calls


@dataclass
class Part:
    """Times are in seconds per update."""

    seconds: float = 0.0
    calls: Counter[Call] = field(default_factory=Counter)

    @property
    def gflop(self) -> float:
        return sum(call.flops * count for call, count in self.calls.items()) / 1e9

    def matmul_seconds(self) -> float:
        return sum(call.seconds() * count for call, count in self.calls.items())


class _Recorder(TorchDispatchMode):
    def __init__(self, parts: Mapping[str, Part], stack: list[str]) -> None:
        super().__init__()
        self.parts, self.stack = parts, stack

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, packet = func(*args, **(kwargs or {})), func.overloadpacket
        if packet in FLOPS:
            # ``out=`` is left out: where the result goes costs little
            function = packet.default if "out" in (kwargs or {}) else func
            call = Call(function, tuple(map(_hashable, args)), FLOPS[packet](*args, out_val=result))
            self.parts[self.stack[-1]].calls[call] += 1
        return result


def _hashable(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return Layout(tuple(argument.shape), argument.stride())
    return tuple(argument) if isinstance(argument, list) else argument


def measure_parts(update: Callable[[], Any], owners: Mapping[str, Owner], times: int = 5) -> dict[str, Part]:
    """The parts of an update. What no part does is ``rest``."""
    parts: dict[str, Part] = defaultdict(Part)
    stack = ["rest"]
    with _watched(owners, parts, stack):
        for _ in range(times):
            before = time.process_time()
            update()
            parts["rest"].seconds += time.process_time() - before
        taken = {name: part.seconds / times for name, part in parts.items()}
        with _Recorder(parts, stack):
            update()
    return {name: Part(seconds, parts[name].calls) for name, seconds in taken.items()}


@contextmanager
def _watched(owners: Mapping[str, Owner], parts: Mapping[str, Part], stack: list[str]) -> Iterator[None]:
    originals = {name: getattr(*owner) for name, owner in owners.items()}
    for name, owner in owners.items():
        setattr(*owner, _timed(name, originals[name], parts, stack))
    try:
        yield
    finally:
        for name, owner in owners.items():
            setattr(*owner, originals[name])


def _timed(name: str, call: Callable[..., Any], parts: Mapping[str, Part], stack: list[str]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        stack.append(name)
        before = time.process_time()
        result = call(*arguments, **named)
        taken = time.process_time() - before
        stack.pop()
        parts[name].seconds += taken
        parts[stack[-1]].seconds -= taken
        return result

    return timed
