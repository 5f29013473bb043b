"""Fully connected networks in numpy, with their gradients written out.

For small networks torch's bookkeeping, above all autograd's, costs several times more than the arithmetic. Weights and
gradients are views of torch's, so there is nothing to keep in step; build it once an optimiser has put both in their
places. Used on the CPU only, and always or never for a given network, because the two ways differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from torch import Tensor, nn

from reverie.core.types import Array
from reverie.nets.encoders import MLP, VectorInput
from reverie.nets.ensemble import EnsembleLinear, EnsembleMLP
from reverie.nets.layers import Linear

quietly = np.errstate(over="ignore", invalid="ignore")
"""Decorates updates: that a loss is not finite is found out and told elsewhere, as it is for torch."""

Kept = list[Array]
"""What a forward pass leaves for the backward one: the input of every layer and the last output."""


def _tanh(x: Array) -> None:
    np.tanh(x, out=x)


def _tanh_slope(gradient: Array, output: Array) -> None:
    slope = output * output
    np.subtract(1, slope, out=slope)
    gradient *= slope


def _relu(x: Array) -> None:
    np.maximum(x, np.zeros(x.shape[-1], x.dtype), out=x)  # a row of zeros: with a scalar numpy takes four times as long


def _relu_slope(gradient: Array, output: Array) -> None:
    gradient *= output > 0


Activation = tuple[Callable[[Array], None], Callable[[Array, Array], None]]
"""Both in place: apply it, and multiply a gradient by its slope, which follows from its output."""
_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.Tanh: (_tanh, _tanh_slope), nn.ReLU: (_relu, _relu_slope)}


class NumpyLayer:
    """A linear layer and what follows it."""

    def __init__(self, layer: nn.Linear, activation: nn.Module | None = None) -> None:
        self.weight, self.bias = _view(layer.weight), _view(layer.bias)  # (outputs, inputs)
        self.transposed = self.weight.T
        self.activation = None if activation is None else _ACTIVATIONS[type(activation)]
        self.weight_gradient, self.bias_gradient = _view(layer.weight.grad), _view(layer.bias.grad)

    def forward(self, x: Array) -> Array:
        y: Array = x @ self.transposed
        y += self.bias
        if self.activation is not None:
            self.activation[0](y)
        return y

    def backward(self, gradient: Array, x: Array, y: Array, wants_input: bool) -> Array | None:
        """Write the weights' gradients; the one of the input if wanted. ``gradient`` is used up."""
        if self.activation is not None:
            self.activation[1](gradient, y)
        np.matmul(gradient.T, x, out=self.weight_gradient)
        np.dot(_ones(len(gradient)), gradient, out=self.bias_gradient)
        return gradient @ self.weight if wants_input else None


class NumpyMLP:
    """A chain of layers."""

    def __init__(self, layers: Sequence[NumpyLayer]) -> None:
        self.layers = layers

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def forward(self, x: Array) -> Kept:
        """The output as the last of what the backward pass needs."""
        kept = [x]
        for layer in self.layers:
            kept.append(layer.forward(kept[-1]))
        return kept

    def backward(self, gradient: Array, kept: Kept, wants_input: bool = False) -> Array | None:
        """Set all gradients from that of the output, which is used up."""
        passed: Array | None = gradient
        for index in reversed(range(len(self.layers))):
            assert passed is not None
            passed = self.layers[index].backward(passed, kept[index], kept[index + 1], wants_input or index > 0)
        return passed


class NumpyEnsemble:
    """Several networks of one shape side by side: (B, inputs) to (count, B, outputs)."""

    def __init__(self, ensemble: EnsembleMLP) -> None:
        modules = list(ensemble.layers)
        linear = [layer for layer in modules if isinstance(layer, EnsembleLinear)]
        self.weights = [_view(layer.weight) for layer in linear]  # (count, inputs, outputs)
        self.biases = [_view(layer.bias) for layer in linear]  # (count, 1, outputs)
        self.gradients = [(_view(layer.weight.grad), _view(layer.bias.grad)) for layer in linear]
        self.activation, self.slope = _ACTIVATIONS[type(modules[1])]

    def forward(self, x: Array) -> Kept:
        kept = [x]
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            y = kept[-1] @ weight
            y += bias
            if index < len(self.weights) - 1:
                self.activation(y)
            kept.append(y)
        return kept

    def __call__(self, x: Array) -> Array:
        return self.forward(x)[-1]

    def backward(self, gradient: Array, kept: Kept) -> None:
        """Set all gradients from that of the output (count, B, outputs), which is used up."""
        for index in reversed(range(len(self.weights))):
            weight_gradient, bias_gradient = self.gradients[index]
            np.matmul(kept[index].swapaxes(-1, -2), gradient, out=weight_gradient)
            np.matmul(_ones(gradient.shape[1])[None], gradient, out=bias_gradient)
            if index:
                gradient = self._before(gradient, kept, index)

    def input_gradient(self, gradient: Array, kept: Kept, begin: int) -> Array:
        """The derivative by the input's columns from ``begin`` on (B, ...); the weights' gradients stay as they are."""
        for index in reversed(range(1, len(self.weights))):
            gradient = self._before(gradient, kept, index)
        total: Array = (gradient @ self.weights[0][:, begin:].swapaxes(1, 2)).sum(0)
        return total

    def _before(self, gradient: Array, kept: Kept, index: int) -> Array:
        """The derivative before the activation in front of a layer."""
        back = self.weights[index].swapaxes(1, 2)
        gradient = gradient * back if back.shape[1] == 1 else gradient @ back  # numpy is slow at outer products
        self.slope(gradient, kept[index])
        return gradient


class NumpyInput:
    """What :class:`VectorInput` does: every observation as one flat vector of floats, indices one-hot."""

    def __init__(self, inputs: VectorInput) -> None:
        self.plain = [(key, key in inputs.bytes) for key in inputs.plain]
        self.indices = [
            (key, layer.offsets.numpy(), layer.width)
            for key, layer in zip(inputs.index_keys, inputs.one_hot, strict=True)
        ]

    def __call__(self, observation: Mapping[str, Array]) -> Array:  # (B, ...) -> (B, width)
        parts = []
        for key, is_bytes in self.plain:
            flat = observation[key].reshape(len(observation[key]), -1)
            parts.append(flat / np.float32(255) if is_bytes else flat)
        for key, offsets, width in self.indices:
            index = observation[key]
            hot = np.zeros((len(index), width), np.float32)
            np.put_along_axis(hot, index.reshape(len(index), -1) + offsets, 1, axis=1)
            parts.append(hot)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def is_plain(layers: nn.Module) -> bool:
    """Whether layers can run in numpy: linear ones without norms, with activations known here."""
    known = (nn.Linear, Linear, EnsembleLinear, *_ACTIVATIONS)
    return all(type(layer) in known for layer in layers.children())


def is_plain_mlp(trunk: nn.Module) -> bool:
    return isinstance(trunk, MLP) and is_plain(trunk.layers)


def make_numpy_layers(layers: nn.Sequential) -> list[NumpyLayer]:
    """The numpy form of hidden layers that are plain."""
    modules = list(layers)
    return [NumpyLayer(layer, after) for layer, after in zip(modules[::2], modules[1::2], strict=True)]


@lru_cache
def _ones(count: int) -> Array:
    """For sums over rows: numpy multiplies faster than it adds up."""
    return np.ones(count, np.float32)


def _view(tensor: Tensor | None) -> Array:
    """A numpy view; a layer without gradients (a target network's) gets a place that nobody reads."""
    return np.empty(0, np.float32) if tensor is None else tensor.detach().numpy()
