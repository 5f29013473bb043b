"""Convolutions that halve an image step by step down to a small grid, and back up: the eyes of world models.

The default form is that of DreamerV3's code: stride 1 with pooling on the way down, doubled pixels on the way up.
``strided`` halves and doubles by the convolutions themselves, a smaller and quicker network. Norms go over the
channels of each pixel. Images are (N, H, W, C) outside and channels-last inside, which is the same memory.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie.core.config import Config
from reverie.core.errors import ConfigError
from reverie.core.wording import count
from reverie.nets.blocks import BlockLinear, Dense, NormedSiLU, make_linear, truncated_normal
from reverie.nets.precision import widened

LARGEST_GRID, SMALLEST_GRID = 16, 3


class PyramidConfig(Config):
    """Convolutions between an image and a small grid."""

    depth: int = 16
    """Channels of the image layers, times ``multipliers``."""
    multipliers: tuple[int, ...] = (2, 3, 4, 4)
    """Channels of each layer, in multiples of ``depth``; each halves the image."""
    kernel: int = 5
    """Width of the convolutions; odd."""
    strided: bool = False
    """Halve and double the image by strides instead of pooling and repeating: quicker, another network."""

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(self.depth * multiplier for multiplier in self.multipliers)


def grid_of(config: PyramidConfig, height: int, width: int) -> tuple[int, int]:
    """The size of the smallest layer, if the image fits the layers."""
    factor = 2 ** len(config.multipliers)
    grid = height // factor, width // factor
    if height % factor or width % factor or not all(SMALLEST_GRID <= side <= LARGEST_GRID for side in grid):
        raise ConfigError(
            f"An image of {height}x{width} cannot be halved {count(len(config.multipliers), 'time')}: a grid of "
            f"{SMALLEST_GRID} to {LARGEST_GRID} must be left.",
            "Resize it with the wrapper {kind: resize, width: 64, height: 64}, or change **.multipliers.",
        )
    return grid


class ImageEncoder(nn.Module):
    """Images (N, H, W, C) between -0.5 and 0.5 as vectors."""

    def __init__(self, config: PyramidConfig, height: int, width: int, channels: int) -> None:
        super().__init__()
        self.strided = config.strided
        inputs = (channels, *config.channels[:-1])
        sizes = zip(inputs, config.channels, strict=True)
        stride = 2 if config.strided else 1
        self.layers = nn.ModuleList([_convolution(i, o, config.kernel, stride) for i, o in sizes])
        self.norms = nn.ModuleList([NormedSiLU(outputs) for outputs in config.channels])
        self.width = math.prod(grid_of(config, height, width)) * config.channels[-1]

    def forward(self, image: Tensor) -> Tensor:
        x = image.permute(0, 3, 1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = layer(x)
            if not self.strided:
                x = F.max_pool2d(x, 2)
            x = norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x.permute(0, 2, 3, 1).flatten(1)


class ImageDecoder(nn.Module):
    """A state and a latent vector as images (N, H, W, C) between 0 and 1.

    The grid that it starts from is laid out by blocks of the state, to which a projection of the latent is added.
    """

    def __init__(
        self, config: PyramidConfig, size: tuple[int, int, int], state: int, latent: int, units: int, blocks: int
    ) -> None:
        super().__init__()
        self.grid = grid_of(config, *size[:2])
        first = config.channels[-1]
        self.blocks = blocks
        self.from_state = BlockLinear(blocks, state, math.prod(self.grid) * first)
        self.from_latent = nn.Sequential(
            Dense(latent, 2 * units), make_linear(2 * units, math.prod(self.grid) * first)
        )  # fmt: skip
        outputs = (*config.channels[-2::-1], size[2])
        inputs = (first, *outputs[:-1])
        make = TransposedDoubling if config.strided else Doubling
        self.start = NormedSiLU(first)
        self.layers = nn.ModuleList([make(i, o, config.kernel) for i, o in zip(inputs, outputs, strict=True)])
        self.norms = nn.ModuleList([NormedSiLU(o) for o in outputs[:-1]])

    @property
    def output_bias(self) -> Tensor:
        """One number per channel (C,), before the sigmoid: 0 shows half brightness."""
        return self.layers[-1].bias

    def forward(self, state: Tensor, latent: Tensor) -> Tensor:
        height, width = self.grid
        blocks = self.from_state(state).unflatten(1, (self.blocks, height, width, -1))
        ours = blocks.permute(0, 2, 3, 1, 4).flatten(3)  # (N, h, w, channels)
        x = self.start(ours + self.from_latent(latent).view_as(ours)).permute(0, 3, 1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = norm(layer(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return widened(self.layers[-1](x)).permute(0, 2, 3, 1).sigmoid()


class Doubling(nn.Module):
    """Every pixel repeated twice in both directions, then a convolution of stride 1: (N, C, h, w) to (N, D, 2h, 2w).

    Repeated pixels are multiplied by several weights each. Adding those weights first gives four small kernels, one
    for each of the four pixels that a pixel becomes: the same numbers for about a third of the work (9 products
    instead of 25 with a kernel of 5; forward and backward took 0.3 to 0.6 of the time).
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.convolution = _convolution(inputs, outputs, kernel, 1)
        self.register_buffer("fold", _fold_matrix(kernel), persistent=False)  # (2, small, kernel)

    @property
    def bias(self) -> Tensor:
        return self.convolution.bias

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.convolution.weight, self.bias
        small = torch.einsum("pak,qbl,oikl->opqiab", self.fold, self.fold, weight)
        kernels = small.flatten(0, 2).contiguous(memory_format=torch.channels_last)  # (4 * D, C, small, small)
        y = F.conv2d(x, kernels, bias.repeat_interleave(4), padding=self.fold.shape[1] // 2)
        return F.pixel_shuffle(y, 2)


class TransposedDoubling(nn.Module):
    """A transposed convolution of stride 2."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        layer = nn.utils.skip_init(
            nn.ConvTranspose2d, inputs, outputs, kernel, 2, padding=kernel // 2, output_padding=1,
            device=torch.get_default_device(),
        )  # fmt: skip
        truncated_normal(layer.weight, inputs * kernel**2)
        nn.init.zeros_(layer.bias)
        self.layer = layer.to(memory_format=torch.channels_last)

    @property
    def bias(self) -> Tensor:
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def _fold_matrix(kernel: int) -> Tensor:
    """Which of the few weights of a small kernel each weight adds to, for even and odd pixels: (2, small, kernel)."""
    reach = kernel // 2
    small = (reach + 1) // 2  # pixels to each side, before doubling
    fold = torch.zeros(2, 2 * small + 1, kernel)
    for parity in range(2):
        for tap in range(kernel):
            fold[parity, (parity + tap - reach) // 2 + small, tap] = 1
    return fold


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    device = torch.get_default_device()
    layer = nn.utils.skip_init(nn.Conv2d, inputs, outputs, kernel, stride, padding=kernel // 2, device=device)
    truncated_normal(layer.weight, inputs * kernel**2)
    nn.init.zeros_(layer.bias)
    return layer.to(memory_format=torch.channels_last)
