"""Layers of world models in numpy, for acting: on few rows most of torch's time is overhead.

Weights are views of torch's. Build these after the optimiser, which moves weights to their final storage.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from reverie.core.types import Array
from reverie.nets.blocks import NORM_EPSILON, BlockGRU, Dense


def view(parameter: Tensor) -> Array:
    array: Array = parameter.detach().numpy()
    return array


def sigmoid(x: Array) -> Array:
    """In place. Uses tanh, which does not overflow."""
    x *= np.float32(0.5)
    np.tanh(x, out=x)
    x += np.float32(1)
    x *= np.float32(0.5)
    return x


def normed_silu(x: Array, scale: Array) -> Array:
    """RMS norm over the last axis, then SiLU. In place."""
    mean_square = np.add.reduce(x * x, -1, keepdims=True)
    mean_square /= np.float32(x.shape[-1])
    mean_square += np.float32(NORM_EPSILON)
    x /= np.sqrt(mean_square, out=mean_square)
    x *= scale
    return np.multiply(x, sigmoid(x.copy()), out=x)


class NumpyLinear:
    """(N, inputs) to (N, outputs)."""

    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = view(layer.weight).T, view(layer.bias)

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.weight
        y += self.bias
        return y


class NumpyDense:
    """Linear layer, norm and activation."""

    def __init__(self, dense: Dense) -> None:
        self.linear, self.scale = NumpyLinear(dense.linear), view(dense.finish.scale)

    def __call__(self, x: Array) -> Array:
        return normed_silu(self.linear(x), self.scale)


class NumpyChain:
    """Dense and linear layers, one after another."""

    def __init__(self, *layers: nn.Module) -> None:
        self.layers = [_in_numpy(layer) for layer in layers]

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = layer(x)
        return x


def _in_numpy(layer: nn.Module) -> NumpyDense | NumpyLinear:
    if isinstance(layer, Dense):
        return NumpyDense(layer)
    assert isinstance(layer, nn.Linear)
    return NumpyLinear(layer)


class NumpyBlockGRU:
    """:class:`BlockGRU` in numpy, with the projection of its input."""

    def __init__(self, core: BlockGRU) -> None:
        self.own, self.own_bias, self.blocks = view(core.own.weight), view(core.own.bias), core.own.blocks
        self.shared, self.scale = view(core.shared.weight).T, view(core.hidden.scale)
        self.gates, self.gates_bias = view(core.gates.weight), view(core.gates.bias).reshape(self.blocks, 1, -1)

    def __call__(self, state: Array, shared: Array) -> Array:
        """The next state (N, D) from the state and its input (N, 3 h)."""
        blocks = self._blockwise(state)
        hidden = shared @ self.shared
        hidden += self.own_bias
        self._blockwise(hidden)[...] += blocks @ self.own
        gates = self._blockwise(normed_silu(hidden, self.scale)) @ self.gates
        gates += self.gates_bias
        width = blocks.shape[-1]
        reset, candidate, update = gates[..., :width], gates[..., width : 2 * width], gates[..., 2 * width :]
        update -= np.float32(1)
        new = np.tanh(sigmoid(reset) * candidate)
        new -= blocks
        new *= sigmoid(update)
        new += blocks
        after: Array = new.swapaxes(0, 1).reshape(state.shape)
        return after

    def _blockwise(self, x: Array) -> Array:
        """A view (k, N, D / k) of (N, D)."""
        return x.reshape(len(x), self.blocks, -1).swapaxes(0, 1)
