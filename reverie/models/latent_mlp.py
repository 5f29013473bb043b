"""The implicit world model of TD-MPC2: an encoder and fully connected networks on normalised latents, no decoder.

Hansen et al. 2024, "TD-MPC2: Scalable, Robust World Models for Continuous Control". Latents consist of groups of
probabilities (SimNorm). Rewards are predicted for a latent and an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.specs import ObservationSpec, Specs
from reverie.functional.simnorm import simnorm
from reverie.models.image_layers import convolutions_of, convolved_width
from reverie.nets.encoders import VectorInput
from reverie.nets.mish_blocks import MishDense, MishMLP, SimNormDense
from reverie.nets.two_hot import SymlogTwoHot

LARGEST_SYMLOG = 10.0
_KERNELS = ((7, 2), (5, 2), (3, 2), (3, 1))
"""Kernel sizes and strides of the image encoder."""


class LatentMLPConfig(ComponentConfig):
    """Sizes of the world model. Defaults are those of the reference's 5 million weights."""

    kind: str = "latent_mlp"
    latent: int = Field(512, ge=1)
    """Width of the latent."""
    group: int = Field(8, ge=1)
    """Values of the latent that are normalised together: each group is a softmax."""
    encoder_units: int = Field(256, ge=1)
    """Width of the encoder's layers."""
    encoder_layers: int = Field(2, ge=1)
    """Layers of the encoder, including the one that makes the latent."""
    channels: int = Field(32, ge=1)
    """Channels of the encoder's convolutions, for images."""
    units: int = Field(512, ge=1)
    """Width of the layers of all other networks."""
    bins: int = Field(101, ge=3)
    """Bins of rewards and values, evenly spaced from -10 to 10 in symlog space."""

    @model_validator(mode="after")
    def _has_groups(self) -> LatentMLPConfig:
        if self.latent % self.group:
            raise ValueError(f"latent ({self.latent}) must be a multiple of group ({self.group})")
        return self


class LatentMLP(nn.Module):
    """Encoder, dynamics, reward and, for tasks that can terminate, termination."""

    Config = LatentMLPConfig
    bins: Tensor

    def __init__(self, config: LatentMLPConfig, specs: Specs, is_episodic: bool) -> None:
        super().__init__()
        self.config = config
        self.inputs = config.latent + specs.action.width
        """Width of a latent with an action."""
        self.unknown = 1 / config.group
        """The value of every number of a latent about which nothing is known."""
        self.encoder = LatentEncoder(config, specs.observations)
        self.dynamics = MishMLP(self.inputs, config.units, config.latent, group=config.group)
        self.reward_head = MishMLP(self.inputs, config.units, config.bins, start="zero")
        self.termination_head = MishMLP(config.latent, config.units, 1) if is_episodic else None
        self.register_buffer("bins", torch.linspace(-LARGEST_SYMLOG, LARGEST_SYMLOG, config.bins), persistent=False)

    def encode(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Latents (..., L) of observations (..., *shape)."""
        return self.encoder(observations)

    def next(self, latent: Tensor, action: Tensor) -> Tensor:
        """Latents (N, L) after actions (N, A)."""
        return self.dynamics(torch.cat([latent, action], -1))

    def reward(self, latent: Tensor, action: Tensor) -> SymlogTwoHot:
        """Distributions of the rewards of actions (..., A)."""
        return SymlogTwoHot(self.reward_head(torch.cat([latent, action], -1)), self.bins)

    def continuation(self, latent: Tensor) -> Tensor:
        """Probability (...) that the episode did not end when the latent was reached."""
        if self.termination_head is None:
            return torch.ones_like(latent[..., 0])
        return torch.sigmoid(-self.termination_head(latent).squeeze(-1))

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Next latents (N, L) and mean rewards (N)."""
        pair = torch.cat([latent, action], -1)
        return self.dynamics(pair), SymlogTwoHot(self.reward_head(pair), self.bins).mean()

    def step_shared(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Like ``step`` for C actions of each latent: (N, L) and (N * C, A)."""
        reward = SymlogTwoHot(self.reward_head.forward_shared(latent, action), self.bins).mean()
        return self.dynamics.forward_shared(latent, action), reward


class LatentEncoder(nn.Module):
    """Observations of any kind to latents. Images go through convolutions, all else through fully connected layers."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, config: LatentMLPConfig, observations: Mapping[str, ObservationSpec]) -> None:
        super().__init__()
        self.group = config.group
        images = {key: spec for key, spec in observations.items() if spec.kind == "image"}
        rest = {key: spec for key, spec in observations.items() if spec.kind != "image"}
        self.image_keys = list(images)
        self.convolutions = nn.ModuleList([
            convolutions_of(spec, config.channels, _KERNELS, ends_linear=True) for spec in images.values()
        ])  # fmt: skip
        self.rest = VectorInput(rest) if rest else None
        width = sum(convolved_width(spec, config.channels, _KERNELS) for spec in images.values())
        self.layers = nn.Sequential()
        if self.rest is not None:
            inputs = self.rest.width
            for _ in range(config.encoder_layers - 1):
                self.layers.append(MishDense(inputs, config.encoder_units))
                inputs = config.encoder_units
            width += inputs
        # The reference's image encoder ends with its convolutions, whose output has the width of the latent.
        is_done = self.rest is None and width == config.latent
        self.output = None if is_done else SimNormDense(width, config.latent, config.group)
        self.shapes = {key: len(spec.shape) for key, spec in observations.items()}

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        key, rank = next(iter(self.shapes.items()))
        leading = observations[key].shape[: observations[key].ndim - rank]
        flat = {key: observations[key].reshape(-1, *observations[key].shape[len(leading) :]) for key in self.shapes}
        parts = [
            convolutions(_scaled(flat[key])).flatten(1)
            for key, convolutions in zip(self.image_keys, self.convolutions, strict=True)
        ]
        if self.rest is not None:
            parts.append(self.layers(self.rest(flat)))
        features = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        latent = simnorm(features, self.group) if self.output is None else self.output(features)
        return latent.view(*leading, -1)


def _scaled(image: Tensor) -> Tensor:
    """uint8 (N, H, W, C) to (N, C, H, W) between -0.5 and 0.5; channels-last in memory."""
    return image.permute(0, 3, 1, 2).to(torch.float32, copy=True).div_(255).sub_(0.5)
