"""TOLD, the task-oriented latent dynamics model of TD-MPC: an encoder and fully connected networks, no decoder.

Hansen et al. 2022, "Temporal Difference Learning for Model Predictive Control". Unlike in TD-MPC2, latents are plain
numbers and rewards are regressed. Rewards are predicted for a latent and an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.specs import ObservationSpec, Specs
from reverie.models.image_layers import convolutions_of, convolved_width
from reverie.nets.elu_blocks import EluMLP
from reverie.nets.encoders import VectorInput
from reverie.nets.layers import TRUNK_GAIN, Linear, orthogonal_init

_KERNELS = ((7, 2), (5, 2), (3, 2), (3, 2))
"""Kernel sizes and strides of the image encoder."""


class TOLDConfig(ComponentConfig):
    """Sizes of the world model."""

    kind: str = "told"
    latent: int = Field(50, ge=1)
    """Width of the latent."""
    encoder_units: int = Field(256, ge=1)
    """Width of the encoder's hidden layer."""
    channels: int = Field(32, ge=1)
    """Channels of the encoder's convolutions, for images."""
    units: int = Field(512, ge=1)
    """Width of the layers of all other networks."""


class TOLD(nn.Module):
    """Encoder, dynamics and reward."""

    Config = TOLDConfig
    unknown = 0.0
    """The value of every number of a latent about which nothing is known."""

    def __init__(self, config: TOLDConfig, specs: Specs) -> None:
        super().__init__()
        self.config = config
        self.inputs = config.latent + specs.action.width
        """Width of a latent with an action."""
        self.encoder = TOLDEncoder(config, specs.observations)
        self.dynamics = EluMLP(self.inputs, config.units, config.latent)
        self.reward_head = EluMLP(self.inputs, config.units, 1, zero=True)

    def encode(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Latents (..., L) of observations (..., *shape)."""
        return self.encoder(observations)

    def next(self, latent: Tensor, action: Tensor) -> Tensor:
        """Latents (N, L) after actions (N, A)."""
        return self.dynamics(torch.cat([latent, action], -1))

    def continuation(self, latent: Tensor) -> Tensor:
        """Always 1 (...): the model knows no end of an episode."""
        return torch.ones_like(latent[..., 0])

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Next latents (N, L) and rewards (N)."""
        pair = torch.cat([latent, action], -1)
        return self.dynamics(pair), self.reward_head(pair).squeeze(-1)

    def step_shared(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Like ``step`` for C actions of each latent: (N, L) and (N * C, A)."""
        reward = self.reward_head.forward_shared(latent, action).squeeze(-1)
        return self.dynamics.forward_shared(latent, action), reward


class TOLDEncoder(nn.Module):
    """Observations of any kind to latents. Images go through convolutions, all else through one layer with ELU."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, config: TOLDConfig, observations: Mapping[str, ObservationSpec]) -> None:
        super().__init__()
        images = {key: spec for key, spec in observations.items() if spec.kind == "image"}
        rest = {key: spec for key, spec in observations.items() if spec.kind != "image"}
        self.image_keys = list(images)
        self.convolutions = nn.ModuleList([
            convolutions_of(spec, config.channels, _KERNELS, ends_linear=False) for spec in images.values()
        ])  # fmt: skip
        width = sum(convolved_width(spec, config.channels, _KERNELS) for spec in images.values())
        self.rest = VectorInput(rest) if rest else None
        if self.rest is not None:
            self.hidden = Linear(self.rest.width, config.encoder_units)
            width += config.encoder_units
        self.output = Linear(width, config.latent)
        orthogonal_init(self, 1.0)
        orthogonal_init(self.convolutions, TRUNK_GAIN)
        self.shapes = {key: len(spec.shape) for key, spec in observations.items()}

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        key, rank = next(iter(self.shapes.items()))
        leading = observations[key].shape[: observations[key].ndim - rank]
        flat = {key: observations[key].reshape(-1, *observations[key].shape[len(leading) :]) for key in self.shapes}
        parts = [
            convolutions(flat[key].permute(0, 3, 1, 2).to(torch.float32, copy=True).div_(255)).flatten(1)
            for key, convolutions in zip(self.image_keys, self.convolutions, strict=True)
        ]
        if self.rest is not None:
            parts.append(F.elu(self.hidden(self.rest(flat))))
        return self.output(torch.cat(parts, 1)).view(*leading, -1)
