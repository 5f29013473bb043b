"""Encoder and decoder for any mix of image, vector and index observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from reverie.core.errors import ConfigError
from reverie.core.specs import ObservationSpec
from reverie.functional.symlog import symexp, symlog
from reverie.models.latent import Latent
from reverie.models.rssm import RSSMConfig
from reverie.nets.backend_module import BackendModule
from reverie.nets.blocks import make_dense, make_linear
from reverie.nets.conv_codec import ConvConfig, ImageDecoder, ImageEncoder
from reverie.nets.encoders import VectorInput
from reverie.nets.precision import in_precision

Tensors = Mapping[str, Tensor]

DARKEST = 0.01
"""The decoder starts at least this far from black and white, where a sigmoid has hardly any gradient."""


class CodecConfig(ConvConfig):
    """An encoder or decoder: an MLP for vectors and indices, convolutions for images."""

    layers: int = Field(3, ge=1)
    """Layers of the MLP."""
    units: int = Field(256, ge=1)
    """Width of each layer of the MLP."""
    symlog: bool = True
    """Apply symlog to vectors."""


class Encoder(BackendModule):
    """Observations (B, T, ...) to tokens (B, T, E)."""

    def __init__(self, config: CodecConfig, observations: Mapping[str, ObservationSpec]) -> None:
        super().__init__()
        images, others = split_observations(observations)
        self.image_keys, self.other_keys = list(images), list(others)
        self.num_symlog = 0
        """Columns that symlog is applied to: all but the one-hot columns of indices."""
        self.width = 0
        if others:
            self.inputs = VectorInput(others)
            self.num_symlog = self.inputs.plain_width if config.symlog else 0
            self.layers = make_dense(self.inputs.width, config.units, config.layers)
            self.width += config.units
        if images:
            height, width = common_size(images)
            self.conv = ImageEncoder(config, height, width, sum(spec.shape[2] for spec in images.values()))
            self.width += self.conv.width

    @in_precision
    def forward(self, rows: Tensors) -> Tensor:
        flat = {key: rows[key].flatten(0, 1) for key in (*self.other_keys, *self.image_keys)}
        tokens = [self._vectors(flat)] if self.other_keys else []
        if self.image_keys:
            images = [flat[key] for key in self.image_keys]
            image = images[0] if len(images) == 1 else torch.cat(images, -1)
            tokens.append(self.conv(image.float() / 255 - 0.5))
        joined = tokens[0] if len(tokens) == 1 else torch.cat(tokens, -1)
        return joined.view(*rows["is_first"].shape, -1)

    def _vectors(self, flat: Tensors) -> Tensor:
        vectors, count = self.inputs(flat), self.num_symlog
        if count == vectors.shape[1]:  # the usual case: no indices
            vectors = symlog(vectors)
        else:
            vectors = torch.cat([symlog(vectors[:, :count]), vectors[:, count:]], 1)
        tokens: Tensor = self.layers(vectors)
        return tokens


class Decoder(BackendModule):
    """Latents back to observations."""

    def __init__(self, config: CodecConfig, observations: Mapping[str, ObservationSpec], rssm: RSSMConfig) -> None:
        super().__init__()
        self.images, self.others = split_observations(observations)
        self.has_symlog = config.symlog
        latent = rssm.width
        if self.others:
            self.layers = make_dense(rssm.deter + latent, config.units, config.layers)
            self.output = make_linear(config.units, sum(spec.size for spec in self.others.values()))
        if self.images:
            channels = sum(spec.shape[2] for spec in self.images.values())
            size = (*common_size(self.images), channels)
            self.conv = ImageDecoder(config, size, rssm.deter, latent, config.units, rssm.blocks)

    def loss(self, latent: Latent, rows: Tensors) -> Tensor:
        """Squared errors, and cross entropy for indices, summed over all observations: (B, T)."""
        shape = latent.deter.shape[:-1]
        total = latent.deter.new_zeros(shape.numel())
        for key, predicted in self._outputs(latent).items():
            target = rows[key].flatten(0, len(shape) - 1)
            total = total + _reconstruction_loss(self._spec(key), predicted, target, self.has_symlog)
        return total.view(shape)

    @torch.no_grad()
    def start_at_mean(self, microbatches: Sequence[Tensors]) -> None:
        """Set the last bias so that an untrained decoder shows the mean brightness of each channel instead of one half.

        Otherwise the first hundred updates only darken or brighten all images. That gradient reaches the latents too:
        each settles on one class, whatever the observation, and the image is ignored for a long time.
        """
        if not self.images or self.conv.output_bias.any():  # loaded weights already have a bias
            return
        weights = torch.cat([rows.get("weight", torch.ones_like(rows["reward"])) for rows in microbatches])
        means = [_mean_brightness(torch.cat([rows[key] for rows in microbatches]), weights) for key in self.images]
        self.conv.output_bias.copy_(torch.cat(means).clamp(DARKEST, 1 - DARKEST).logit())

    @torch.no_grad()
    def observations(self, latent: Latent) -> dict[str, Tensor]:
        """Observations (...) in the form of the env."""
        shape = latent.deter.shape[:-1]
        outputs = self._outputs(latent)
        decoded = {key: _to_observation(self._spec(key), output, self.has_symlog) for key, output in outputs.items()}
        return {key: value.unflatten(0, shape) for key, value in decoded.items()}

    @in_precision
    def _outputs(self, latent: Latent) -> dict[str, Tensor]:
        """Network outputs (N, ...) for each key."""
        deter, stoch = latent.flatten()
        outputs: dict[str, Tensor] = {}
        if self.others:
            flat = self.output(self.layers(torch.cat([deter, stoch], -1)))
            columns = flat.split([spec.size for spec in self.others.values()], -1)
            outputs |= dict(zip(self.others, columns, strict=True))
        if self.images:
            channels = self.conv(deter, stoch).split([spec.shape[2] for spec in self.images.values()], -1)
            outputs |= dict(zip(self.images, channels, strict=True))
        return outputs

    def _spec(self, key: str) -> ObservationSpec:
        return self.images[key] if key in self.images else self.others[key]


def split_observations(
    observations: Mapping[str, ObservationSpec],
) -> tuple[dict[str, ObservationSpec], dict[str, ObservationSpec]]:
    """Images, and all other observations."""
    images = {key: spec for key, spec in observations.items() if spec.kind == "image"}
    return images, {key: spec for key, spec in observations.items() if key not in images}


def common_size(images: Mapping[str, ObservationSpec]) -> tuple[int, int]:
    """Height and width of all images, which are stacked as channels of one image."""
    sizes = {spec.shape[:2] for spec in images.values()}
    if len(sizes) > 1:
        raise ConfigError(
            f"The images {', '.join(images)} differ in size: {sorted(sizes)}.",
            "Resize them with the wrapper {kind: resize, width: 64, height: 64}.",
        )
    height, width = sizes.pop()
    return height, width


def _mean_brightness(image: Tensor, weight: Tensor) -> Tensor:
    """Mean of each channel (C,) of images (B, T, H, W, C), between 0 and 1, weighted by rows (B, T)."""
    brightness = image.float().mean((2, 3)) / 255  # (B, T, C)
    return (brightness * weight.unsqueeze(-1)).sum((0, 1)) / weight.sum().clamp(min=1)


def _reconstruction_loss(spec: ObservationSpec, predicted: Tensor, target: Tensor, has_symlog: bool) -> Tensor:
    if spec.kind == "image":
        return (predicted - target.float() / 255).square().flatten(1).sum(1)
    if spec.kind == "discrete":
        pairs = zip(predicted.split(list(spec.classes), -1), target.reshape(len(target), -1).unbind(1), strict=True)
        return torch.stack([F.cross_entropy(logits, index, reduction="none") for logits, index in pairs]).sum(0)
    scaled = target.float() / 255 if spec.dtype == "uint8" else target
    flat = scaled.reshape(len(scaled), -1)
    return (predicted - (symlog(flat) if has_symlog else flat)).square().sum(1)


def _to_observation(spec: ObservationSpec, predicted: Tensor, has_symlog: bool) -> Tensor:
    """Network outputs in the form of the observation."""
    if spec.kind == "image":
        return (predicted * 255).round().to(torch.uint8)
    if spec.kind == "discrete":
        indices = [logits.argmax(-1) for logits in predicted.split(list(spec.classes), -1)]
        return torch.stack(indices, 1).view(-1, *spec.shape)
    decoded = symexp(predicted) if has_symlog else predicted
    if spec.dtype == "uint8":
        decoded = (decoded * 255).round().clamp(0, 255).to(torch.uint8)
    return decoded.view(-1, *spec.shape)
