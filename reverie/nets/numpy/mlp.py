"""Fully connected networks in numpy, with their gradients written out.

In small networks the overhead of torch, above all of autograd, is several times the arithmetic. Weights and gradients
are views of torch's, so there is nothing to synchronise. Build these after the optimiser, which moves both to their
final storage. A run has one engine for all of its updates, because the two differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from reverie.core.types import Array
from reverie.kernels.products import ArrayMatmul
from reverie.nets.encoders import MLP, VectorInput
from reverie.nets.ensemble import EnsembleLinear, EnsembleMLP
from reverie.nets.layers import Linear, OneHot

ignore_overflow = np.errstate(over="ignore", invalid="ignore")
"""Decorates updates. The check for finite losses reports what numpy would warn of, for both engines."""

MANY = 2**14
"""From so many numbers on, torch is faster than numpy in elementwise operations: by a third, from 2^16 on by half."""

Activations = list[Array]
"""What the backward pass needs: the input of every layer, and the output of the last one."""


def _tanh(x: Array) -> None:
    np.tanh(x, out=x)


def _tanh_backward(gradient: Array, output: Array) -> None:
    slope = output * output
    np.subtract(1, slope, out=slope)
    gradient *= slope


def _relu(x: Array) -> None:
    if x.size >= MANY:
        torch.from_numpy(x).relu_()
    else:
        np.maximum(x, np.zeros(x.shape[-1], x.dtype), out=x)  # with a scalar 0 numpy takes four times as long


def _relu_backward(gradient: Array, output: Array) -> None:
    if gradient.size >= MANY:
        tensor = torch.from_numpy(gradient)
        torch.ops.aten.threshold_backward.grad_input(tensor, torch.from_numpy(output), 0, grad_input=tensor)
    else:
        gradient *= output > 0


def _add_bias(x: Array, bias: Array) -> None:
    if x.size >= MANY:
        torch.from_numpy(x).add_(torch.from_numpy(bias))
    else:
        x += bias


ActivationFunction = tuple[Callable[[Array], None], Callable[[Array, Array], None]]
"""Forward, and backward from gradient and output. Both work in place."""
_ACTIVATIONS: dict[type[nn.Module], ActivationFunction] = {
    nn.Tanh: (_tanh, _tanh_backward),
    nn.ReLU: (_relu, _relu_backward),
}


class NumpyLayer:
    """A linear layer and its activation. ``matmul`` computes its products."""

    def __init__(self, layer: nn.Linear, activation: nn.Module | None = None, matmul: ArrayMatmul = np.matmul) -> None:
        self.matmul = matmul
        self.weight, self.bias = _view(layer.weight), _view(layer.bias)  # (outputs, inputs)
        self.transposed = self.weight.T
        self.activation = None if activation is None else _ACTIVATIONS[type(activation)]
        self.weight_gradient, self.bias_gradient = _view(layer.weight.grad), _view(layer.bias.grad)

    def forward(self, x: Array) -> Array:
        y = self.matmul(x, self.transposed)
        _add_bias(y, self.bias)
        if self.activation is not None:
            self.activation[0](y)
        return y

    def infer(self, x: Array) -> Array:  # (inputs, B) -> (outputs, B)
        y = self.matmul(self.weight, x)
        _add_bias(y, self.bias[:, None])
        if self.activation is not None:
            self.activation[0](y)
        return y

    def backward(self, gradient: Array, x: Array, y: Array, wants_input: bool) -> Array | None:
        """Write the gradients of the weights. Return that of the input if wanted. Overwrites ``gradient``."""
        if self.activation is not None:
            self.activation[1](gradient, y)
        self.matmul(gradient.T, x, out=self.weight_gradient)
        np.dot(_ones(len(gradient)), gradient, out=self.bias_gradient)
        return self.matmul(gradient, self.weight) if wants_input else None


class NumpyMLP:
    def __init__(self, layers: Sequence[NumpyLayer]) -> None:
        self.layers = layers

    def __call__(self, x: Array) -> Array:
        """The output alone. Features come first inside: for few rows BLAS multiplies a third faster in that order."""
        x = x.T
        for layer in self.layers:
            x = layer.infer(x)
        return x.T

    def forward(self, x: Array) -> Activations:
        activations = [x]
        for layer in self.layers:
            activations.append(layer.forward(activations[-1]))
        return activations

    def backward(self, gradient: Array, activations: Activations, wants_input: bool = False) -> Array | None:
        """Write all gradients, given that of the output. Overwrites ``gradient``."""
        current: Array | None = gradient
        for index in reversed(range(len(self.layers))):
            assert current is not None
            x, y = activations[index : index + 2]
            current = self.layers[index].backward(current, x, y, wants_input or index > 0)
        return current


class NumpyEnsemble:
    """Several networks of one shape side by side: (B, inputs) to (count, B, outputs)."""

    def __init__(self, ensemble: EnsembleMLP, matmul: ArrayMatmul = np.matmul) -> None:
        self.matmul = matmul
        modules = list(ensemble.layers)
        linear = [layer for layer in modules if isinstance(layer, EnsembleLinear)]
        self.weights = [_view(layer.weight) for layer in linear]  # (count, inputs, outputs)
        self.biases = [_view(layer.bias) for layer in linear]  # (count, 1, outputs)
        self.gradients = [(_view(layer.weight.grad), _view(layer.bias.grad)) for layer in linear]
        self.activation, self.activation_backward = _ACTIVATIONS[type(modules[1])]

    def forward(self, x: Array) -> Activations:
        activations = [x]
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            y = self.matmul(activations[-1], weight)
            _add_bias(y, bias)
            if index < len(self.weights) - 1:
                self.activation(y)
            activations.append(y)
        return activations

    def __call__(self, x: Array) -> Array:
        return self.forward(x)[-1]

    def backward(self, gradient: Array, activations: Activations) -> None:
        """Write all gradients, given that of the output (count, B, outputs). Overwrites ``gradient``."""
        for index in reversed(range(len(self.weights))):
            weight_gradient, bias_gradient = self.gradients[index]
            self.matmul(activations[index].swapaxes(-1, -2), gradient, out=weight_gradient)
            np.matmul(_ones(gradient.shape[1])[None], gradient, out=bias_gradient)
            if index:
                gradient = self._input_gradient(gradient, activations, index)

    def input_gradient(self, gradient: Array, activations: Activations, begin: int) -> Array:
        """Gradient (B, ...) of the input's columns from ``begin`` on. The gradients of the weights stay as they are."""
        for index in reversed(range(1, len(self.weights))):
            gradient = self._input_gradient(gradient, activations, index)
        total: Array = (gradient @ self.weights[0][:, begin:].swapaxes(1, 2)).sum(0)
        return total

    def _input_gradient(self, gradient: Array, activations: Activations, index: int) -> Array:
        """Gradient at the input of a layer, before the activation that computed it."""
        weights = self.weights[index].swapaxes(1, 2)
        is_outer = weights.shape[1] == 1  # where numpy's matmul is slow
        gradient = gradient * weights if is_outer else self.matmul(gradient, weights)
        self.activation_backward(gradient, activations[index])
        return gradient


class NumpyInput:
    """:class:`VectorInput` in numpy: every observation as one flat vector of floats, with one-hot indices."""

    def __init__(self, inputs: VectorInput) -> None:
        self.plain = [(key, key in inputs.bytes) for key in inputs.plain]
        self.indices = [
            (key, layer.offsets.numpy(), layer.width)
            for key, layer in zip(inputs.index_keys, inputs.one_hot, strict=True)
            if isinstance(layer, OneHot)
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


def make_numpy_layers(layers: nn.Sequential, matmul: ArrayMatmul = np.matmul) -> list[NumpyLayer]:
    """Hidden layers, if :func:`is_plain`."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return [NumpyLayer(layer, after, matmul) for layer, after in zip(linear, list(layers)[1::2], strict=True)]


@lru_cache
def _ones(count: int) -> Array:
    """For sums over rows: numpy's matmul is faster than its sum."""
    return np.ones(count, np.float32)


def _view(tensor: Tensor | None) -> Array:
    """A numpy view. Target networks have no gradients; theirs are empty and never read."""
    return np.empty(0, np.float32) if tensor is None else tensor.detach().numpy()
