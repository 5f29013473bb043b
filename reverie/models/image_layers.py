"""The convolutions of TD-MPC and TD-MPC2: a few layers of one width, without padding."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from reverie.core.errors import ConfigError
from reverie.core.specs import ObservationSpec
from reverie.nets.layers import channels_last

Kernels = Sequence[tuple[int, int]]
"""Kernel size and stride of each layer."""


def convolutions_of(spec: ObservationSpec, channels: int, kernels: Kernels, ends_linear: bool) -> nn.Module:
    """Layers with ReLU between them and, unless they end linearly, behind them."""
    smallest = smallest_side(kernels)
    if min(spec.shape[:2]) < smallest:
        raise ConfigError(
            f"The image is {spec.shape[0]}x{spec.shape[1]}; the encoder of TD-MPC needs {smallest} or more.",
            "Enlarge it with the wrapper {kind: resize, width: 64, height: 64}.",
        )
    layers: list[nn.Module] = []
    inputs = spec.shape[2]
    for kernel, stride in kernels:
        layers += [nn.Conv2d(inputs, channels, kernel, stride), nn.ReLU(inplace=True)]
        inputs = channels
    return channels_last(nn.Sequential(*(layers[:-1] if ends_linear else layers)))


def convolved_width(spec: ObservationSpec, channels: int, kernels: Kernels) -> int:
    """Values per image after the last layer."""
    height, width = spec.shape[:2]
    for kernel, stride in kernels:
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
    return height * width * channels


def smallest_side(kernels: Kernels) -> int:
    """With fewer pixels nothing would be left after the last layer."""
    side = 1
    for kernel, stride in reversed(kernels):
        side = (side - 1) * stride + kernel
    return side
