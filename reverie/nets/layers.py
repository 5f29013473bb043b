"""Layers that networks share: linear, activations, MLPs, one-hot inputs; and their initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn

from reverie.nets.backend_module import BackendModule, Module

Activation = Literal["tanh", "relu", "gelu", "silu", "elu"]
Norm = Literal["none", "layer", "rms"]
Initialiser = Literal["orthogonal", "xavier", "kaiming", "torch"]

TRUNK_GAIN = math.sqrt(2)

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "elu": nn.ELU,
}  # fmt: skip
_NORMS: dict[str, type[nn.Module]] = {"none": nn.Identity, "layer": nn.LayerNorm, "rms": nn.RMSNorm}


class Linear(BackendModule, nn.Linear):
    """A linear layer that uses the matmul library of the backend."""

    __call__: Callable[..., Tensor]  # torch says Any

    def forward(self, x: Tensor) -> Tensor:
        return self.matmul.linear(x, self.weight, self.bias)


def linear_shared(layer: nn.Linear, shared: Tensor, own: Tensor) -> Tensor:
    """A layer's output for inputs whose first columns ``shared`` (N, S) are equal within groups of C rows.

    The other columns are ``own`` (N * C, W). The product with the shared columns is computed once per group.
    """
    weight, width = layer.weight, shared.shape[1]
    base = torch.addmm(layer.bias, shared, weight[:, :width].t())  # (N, units)
    product: Tensor = (own @ weight[:, width:].t()).unflatten(0, (len(shared), -1)).add_(base.unsqueeze(1))
    return product.flatten(0, 1)


def make_activation(name: str) -> nn.Module:
    return _ACTIVATIONS[name]()


def make_mlp(width: int, units: Sequence[int], activation: str, norm: str = "none") -> nn.Sequential:
    """Linear layers, each with its norm and activation. Empty for empty ``units``."""
    layers: list[nn.Module] = []
    for size in units:
        layers.append(Linear(width, size))
        if norm != "none":
            layers.append(_NORMS[norm](size))
        layers.append(make_activation(activation))
        width = size
    return nn.Sequential(*layers)


def channels_last(module: Module) -> Module:
    """Lay out the weights of convolutions channels-last, which is fastest on CPUs."""
    # torch's stubs lack the form of Module.to that takes a memory format.
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def orthogonal_init(module: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases in every linear and convolution layer below ``module``."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            weight = torch.empty(layer.weight.shape)  # torch's initialiser refuses channels-last weights
            layer.weight.data.copy_(nn.init.orthogonal_(weight, gain))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def initialise(module: nn.Module, how: Initialiser) -> None:
    """Initialise every linear and convolution layer, with zero biases. ``torch`` leaves them unchanged."""
    if how == "orthogonal":
        orthogonal_init(module, TRUNK_GAIN)
    elif how != "torch":
        draw = nn.init.xavier_uniform_ if how == "xavier" else _kaiming
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                draw(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)


def _kaiming(weight: Tensor) -> Tensor:
    """He et al. 2015. Torch's default assumes a leaky ReLU, which makes weights smaller."""
    return nn.init.kaiming_uniform_(weight, nonlinearity="relu")


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Inside the block, these modules' weights get no gradients, but gradients flow through the modules."""
    learning = [weight for module in modules for weight in module.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


class OneHot(nn.Module):
    """Indices to concatenated one-hot vectors, with one class count per index."""

    offsets: Tensor

    def __init__(self, classes: Sequence[int]) -> None:
        super().__init__()
        offsets = torch.tensor([0, *accumulate(classes[:-1])])
        self.register_buffer("offsets", offsets, persistent=False)
        self.width = sum(classes)

    def forward(self, index: Tensor) -> Tensor:  # (B, ...) -> (B, width)
        positions = index.reshape(index.shape[0], -1) + self.offsets
        return torch.zeros(index.shape[0], self.width, device=index.device).scatter_(1, positions, 1.0)
