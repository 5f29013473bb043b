"""Measures how fast each library multiplies the matrices of a run, and each engine computes its layers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.kernels.products import array_matmul, has_onednn, is_big, onednn_product

MOST_SHAPES = 4
"""Only the layers with the most work are measured."""
MOST_MULTIPLICATIONS = 2**29
"""Larger products are measured with fewer rows."""
ROUNDS = 3
"""All libraries take turns so often: another process that disturbs one turn disturbs no library in all of them."""
SECONDS, MOST_CALLS = 0.0015, 10
"""Time for one product by one library in a turn, after a first call that is not counted."""


@dataclass(frozen=True)
class LayerShape:
    """A fully connected layer in an update of so many rows."""

    rows: int
    inputs: int
    outputs: int

    @property
    def multiplications(self) -> int:
        return self.rows * self.inputs * self.outputs


Speeds = dict[str, dict[str, float]]
"""Seconds of the measured layers in one update, forward and backward.

``engines``: by numpy (gradients written out) and by torch (autograd), each with its fastest library. ``matmul`` and
``numpy_matmul``: the products alone, by library, on torch's and on numpy's side.
"""


def layer_shapes(modules: Iterable[torch.nn.Module], rows: int) -> Counter[LayerShape]:
    """The big fully connected layers with gradients, and how often each occurs. Members of an ensemble count."""
    found: Counter[LayerShape] = Counter()
    weights = {id(weight): weight for module in modules for weight in module.parameters() if weight.requires_grad}
    for weight in weights.values():
        if weight.ndim == 2:
            found[LayerShape(rows, weight.shape[1], weight.shape[0])] += 1
        elif weight.ndim == 3:  # (members, inputs, outputs)
            found[LayerShape(rows, *weight.shape[1:])] += weight.shape[0]
    return Counter({shape: n for shape, n in found.items() if is_big(shape.rows, shape.inputs, shape.outputs)})


def measure(shapes: Counter[LayerShape]) -> Speeds:
    """Time the shapes with the most work. Draws nothing from the generators of the run."""
    most = sorted(shapes.items(), key=lambda item: -item[0].multiplications * item[1])[:MOST_SHAPES]
    layers = [(_measure_layer(shape), count) for shape, count in most]
    groups = layers[0][0]
    return {
        group: {name: sum(count * seconds[group][name] for seconds, count in layers) for name in groups[group]}
        for group in groups
    }


def _measure_layer(shape: LayerShape) -> Speeds:
    rows = min(shape.rows, max(1, MOST_MULTIPLICATIONS // (shape.inputs * shape.outputs)))
    rng = make_generator("kernels")
    sizes = (rows, shape.inputs), (shape.outputs, shape.inputs), (rows, shape.outputs)
    x, weight, gradient = (rng.standard_normal(size, np.float32) for size in sizes)
    scale = shape.rows / rows
    libraries = ("numpy", "torch", "onednn") if has_onednn() else ("numpy", "torch")
    calls: dict[str, Callable[[], float]] = {
        **{f"array {name}": lambda name=name: _array_seconds(name, x, weight, gradient) for name in libraries},  # type: ignore[misc]
        **{f"tensor {name}": lambda name=name: _tensor_seconds(name, x, weight, gradient) for name in libraries[1:]},  # type: ignore[misc]
        "elementwise": lambda: _seconds(lambda: _elementwise(gradient)),
        "autograd": lambda: _autograd_seconds(x, weight, gradient),
    }
    turns = [{name: scale * call() for name, call in calls.items()} for _ in range(ROUNDS)]
    best = {name: min(turn[name] for turn in turns) for name in calls}
    by_array = {name: best[f"array {name}"] for name in libraries}
    by_tensor = {name: best[f"tensor {name}"] for name in libraries[1:]}
    whole = {
        "numpy": min(by_array.values()) + best["elementwise"],
        "torch": best["autograd"] + min(by_tensor.values()) - by_tensor["torch"],
    }
    return {"engines": whole, "matmul": by_tensor, "numpy_matmul": by_array}


def _array_seconds(library: str, x: Array, weight: Array, gradient: Array) -> float:
    """The output of a layer, and the gradients of its weight and its input."""
    matmul = array_matmul(library)
    pairs = (x, weight.T), (gradient.T, x), (gradient, weight)
    return sum(_seconds(lambda pair=pair: matmul(*pair)) for pair in pairs)  # type: ignore[misc]


def _tensor_seconds(library: str, *arrays: Array) -> float:
    product = torch.mm if library == "torch" else onednn_product
    x, weight, gradient = map(torch.from_numpy, arrays)
    pairs = (x, weight.t()), (gradient.t(), x), (gradient, weight)
    with torch.no_grad():
        return sum(_seconds(lambda pair=pair: product(*pair)) for pair in pairs)  # type: ignore[misc]


def _autograd_seconds(*arrays: Array) -> float:
    """The layer and its ReLU in torch, with autograd."""
    x, weight, gradient = map(torch.from_numpy, arrays)
    x.requires_grad_()
    weight.requires_grad_()
    return _seconds(lambda: F.relu(F.linear(x, weight)).backward(gradient))


def _elementwise(gradient: Array) -> None:
    """What a layer of the numpy engine computes besides products: bias, ReLU and its gradient."""
    y = gradient + gradient[0]
    np.maximum(y, 0, out=y)
    y *= y > 0


def _seconds(call: Callable[[], object]) -> float:
    """The fastest of several calls, which other processes have disturbed least.

    With one thread in CPU time, which does not count waiting for other processes.
    """
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    call()
    fastest, spent = float("inf"), 0.0
    for _ in range(MOST_CALLS):
        started = now()
        call()
        taken = now() - started
        fastest, spent = min(fastest, taken), spent + taken
        if spent > SECONDS:
            break
    return fastest
