"""Small fully connected networks evaluated by numpy while acting.

For a few rows at a time torch's bookkeeping costs several times more than the arithmetic. The weights are views of
torch's, so there is nothing to keep in step; build it once an optimiser has put the weights in their place. Used on
the CPU only, and always or never for a given network, because the two ways differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from reverie import backend
from reverie.core.types import Array
from reverie.nets.encoders import MLP

_ACTIVATIONS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.Tanh: np.tanh,
    nn.ReLU: lambda x, out: np.maximum(x, 0, out=out),
}


class NumpyNetwork:
    """``output(trunk(observation))`` for an MLP over one vector observation."""

    def __init__(self, trunk: MLP, output: nn.Linear) -> None:
        self.key = trunk.inputs.plain[0]
        linear = [*(layer for layer in trunk.layers if isinstance(layer, nn.Linear)), output]
        activations = [_ACTIVATIONS[type(layer)] for layer in trunk.layers if not isinstance(layer, nn.Linear)]
        views = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in linear]
        self.layers = list(zip(views, [*activations, None], strict=True))

    def __call__(self, observation: Mapping[str, Array]) -> Array:  # (B, ...) -> (B, outputs)
        x = observation[self.key]
        x = x.reshape(len(x), -1)
        for (weight, bias), activation in self.layers:
            x = x @ weight
            x += bias
            if activation is not None:
                activation(x, out=x)
        return x


def make_numpy_network(trunk: nn.Module, output: nn.Module) -> NumpyNetwork | None:
    """The numpy form of a network, or None where torch has to do it."""
    plain = isinstance(trunk, MLP) and isinstance(output, nn.Linear) and backend.device().type == "cpu"
    if not plain or len(trunk.inputs.plain) != 1 or trunk.inputs.index_keys or trunk.inputs.bytes:
        return None
    known = all(isinstance(layer, nn.Linear) or type(layer) in _ACTIVATIONS for layer in trunk.layers)
    return NumpyNetwork(trunk, output) if known else None
