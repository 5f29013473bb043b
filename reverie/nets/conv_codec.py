"""Convolutional image encoder and decoder of world models.

Each encoder layer halves the image until a small grid is left; the decoder reverses this. The default is that of
DreamerV3's code: convolutions of stride 1, max pooling in the encoder, nearest-neighbour upsampling in the decoder.
``strided`` uses strided and transposed convolutions instead, a smaller and faster network. Norms are over the channels
of each pixel. Images are (N, H, W, C) outside and channels-last inside: the same memory layout.
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
from reverie.nets.layers import channels_last
from reverie.nets.precision import widened

LARGEST_GRID, SMALLEST_GRID = 16, 3


class ConvConfig(Config):
    """Convolutions between an image and a small grid."""

    depth: int = 16
    """Base number of channels."""
    multipliers: tuple[int, ...] = (2, 3, 4, 4)
    """Channels of each layer, in multiples of ``depth``. Each layer halves the image."""
    kernel: int = 5
    """Kernel size of the convolutions; odd."""
    strided: bool = False
    """Use strided convolutions instead of pooling and upsampling: a different, faster network."""

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(self.depth * multiplier for multiplier in self.multipliers)


def grid_size(config: ConvConfig, height: int, width: int) -> tuple[int, int]:
    """Height and width of the smallest layer."""
    factor = 2 ** len(config.multipliers)
    grid = height // factor, width // factor
    if height % factor or width % factor or not all(SMALLEST_GRID <= side <= LARGEST_GRID for side in grid):
        raise ConfigError(
            f"An image of {height}x{width} cannot be halved {count(len(config.multipliers), 'time')}: the "
            f"last layer must be {SMALLEST_GRID} to {LARGEST_GRID} pixels high and wide.",
            "Resize it with the wrapper {kind: resize, width: 64, height: 64}, or change **.multipliers.",
        )
    return grid


class ImageEncoder(nn.Module):
    """Images (N, H, W, C) between -0.5 and 0.5 to vectors (N, width)."""

    def __init__(self, config: ConvConfig, height: int, width: int, channels: int) -> None:
        super().__init__()
        self.strided = config.strided
        inputs = (channels, *config.channels[:-1])
        sizes = zip(inputs, config.channels, strict=True)
        stride = 2 if config.strided else 1
        self.layers = nn.ModuleList([_convolution(i, o, config.kernel, stride) for i, o in sizes])
        self.norms = nn.ModuleList([NormedSiLU(outputs) for outputs in config.channels])
        self.width = math.prod(grid_size(config, height, width)) * config.channels[-1]

    def forward(self, image: Tensor) -> Tensor:
        x = image.permute(0, 3, 1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = layer(x)
            if not self.strided:
                x = F.max_pool2d(x, 2)
            x = norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x.permute(0, 2, 3, 1).flatten(1)


class ImageDecoder(nn.Module):
    """A recurrent state and a latent vector to images (N, H, W, C) between 0 and 1.

    The first grid is a block-wise projection of the state plus a projection of the latent.
    """

    def __init__(
        self, config: ConvConfig, size: tuple[int, int, int], state: int, latent: int, units: int, blocks: int
    ) -> None:
        super().__init__()
        self.grid = grid_size(config, *size[:2])
        first = config.channels[-1]
        self.blocks = blocks
        self.from_state = BlockLinear(blocks, state, math.prod(self.grid) * first)
        self.from_latent = nn.Sequential(
            Dense(latent, 2 * units), make_linear(2 * units, math.prod(self.grid) * first)
        )  # fmt: skip
        outputs = (*config.channels[-2::-1], size[2])
        inputs = (first, *outputs[:-1])
        make = TransposedConv if config.strided else UpsampleConv
        self.start = NormedSiLU(first)
        self.layers = nn.ModuleList([make(i, o, config.kernel) for i, o in zip(inputs, outputs, strict=True)])
        self.norms = nn.ModuleList([NormedSiLU(o) for o in outputs[:-1]])

    @property
    def output_bias(self) -> Tensor:
        """The last bias (C,), one number per channel before the sigmoid: 0 is half brightness."""
        last = self.layers[-1]
        assert isinstance(last, UpsampleConv | TransposedConv)
        return last.bias

    def forward(self, state: Tensor, latent: Tensor) -> Tensor:
        height, width = self.grid
        blocks = self.from_state(state).unflatten(1, (self.blocks, height, width, -1))
        grid = blocks.permute(0, 2, 3, 1, 4).flatten(3)  # (N, h, w, channels)
        x = self.start(grid + self.from_latent(latent).view_as(grid)).permute(0, 3, 1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = norm(layer(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return widened(self.layers[-1](x)).permute(0, 2, 3, 1).sigmoid()


class UpsampleConv(nn.Module):
    """Nearest-neighbour upsampling by 2, then a convolution of stride 1: (N, C, h, w) to (N, D, 2h, 2w).

    After upsampling, several kernel weights multiply copies of the same pixel. Summing those weights first gives four
    small kernels, one for each copy of a pixel: the same result with about a third of the work (9 multiplications
    instead of 25 with a kernel of 5; forward and backward took 0.3 to 0.6 of the time).
    """

    fold: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.convolution = _convolution(inputs, outputs, kernel, 1)
        self.register_buffer("fold", _fold_matrix(kernel), persistent=False)  # (2, small, kernel)

    @property
    def bias(self) -> Tensor:
        assert self.convolution.bias is not None
        return self.convolution.bias

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.convolution.weight, self.bias
        small = torch.einsum("pak,qbl,oikl->opqiab", self.fold, self.fold, weight)
        kernels = small.flatten(0, 2).contiguous(memory_format=torch.channels_last)  # (4 * D, C, small, small)
        y = F.conv2d(x, kernels, bias.repeat_interleave(4), padding=self.fold.shape[1] // 2)
        return F.pixel_shuffle(y, 2)


class TransposedConv(nn.Module):
    """A transposed convolution of stride 2."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        layer: nn.ConvTranspose2d = nn.utils.skip_init(
            nn.ConvTranspose2d, inputs, outputs, kernel, 2, padding=kernel // 2, output_padding=1,
            device=torch.get_default_device(),
        )  # fmt: skip
        truncated_normal(layer.weight, inputs * kernel**2)
        self.layer = channels_last(layer)
        nn.init.zeros_(self.bias)

    @property
    def bias(self) -> Tensor:
        assert self.layer.bias is not None
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


def _fold_matrix(kernel: int) -> Tensor:
    """Matrix that sums kernel weights into the small kernels of even and odd pixels: (2, small, kernel)."""
    reach = kernel // 2
    small = (reach + 1) // 2  # pixels to each side, before upsampling
    fold = torch.zeros(2, 2 * small + 1, kernel)
    for parity in range(2):
        for tap in range(kernel):
            fold[parity, (parity + tap - reach) // 2 + small, tap] = 1
    return fold


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    layer: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, inputs, outputs, kernel, stride, padding=kernel // 2, device=torch.get_default_device()
    )
    truncated_normal(layer.weight, inputs * kernel**2)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return channels_last(layer)
