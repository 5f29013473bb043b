"""Everything that a dream needs: what is seen becomes tokens, the RSSM follows them, heads and a decoder read it.

Any mix of image, vector and index observations goes in and comes out. Vectors are pressed by symlog on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.functional.symlog import symexp, symlog
from reverie.models.gaussian_rssm import GaussianRSSM
from reverie.models.rssm import RSSM, Latent, Observed, Policy, RSSMConfig
from reverie.nets.blocks import make_dense, make_linear
from reverie.nets.choices import Features, plain
from reverie.nets.encoders import VectorInput
from reverie.nets.layers import OneHot
from reverie.nets.precision import in_precision
from reverie.nets.pyramid import ImageDecoder, ImageEncoder, PyramidConfig
from reverie.nets.two_hot import ChanceHead, HeadConfig, ScalarHead, ScalarHeadConfig, in_parts

Tensors = Mapping[str, Tensor]

DARKEST = 0.01
"""The decoder starts no closer to black or white than this: a sigmoid has no slope there."""


class CodecConfig(PyramidConfig):
    """An encoder or decoder: layers for vectors, a pyramid for images."""

    layers: int = Field(3, ge=1)
    """Fully connected layers for everything that is not an image."""
    units: int = Field(256, ge=1)
    """How wide they are."""
    symlog: bool = True
    """Press vectors by symlog; without it they are taken as they are."""


class WorldModelConfig(ComponentConfig):
    """A recurrent state-space model with its encoder, decoder and heads."""

    kind: str = "rssm"
    rssm: RSSMConfig = RSSMConfig()
    """The memory."""
    encoder: CodecConfig = CodecConfig()
    """From observations to the memory."""
    decoder: CodecConfig = CodecConfig()
    """From the memory back to observations."""
    reward: ScalarHeadConfig = ScalarHeadConfig()
    """Predicts the reward."""
    continuation: HeadConfig = HeadConfig()
    """Predicts how much of the future is left."""


class Dream(NamedTuple):
    """A rollout of H steps from N states."""

    seen: Features
    """What heads look at (H + 1, N, F); the first are where it began."""
    actions: Tensor
    """(H, N, *shape): entry t leads from features t to t + 1."""

    @property
    def features(self) -> Tensor:
        """The same as numbers."""
        return plain(self.seen)


class Prediction(NamedTuple):
    """What the model expects at features (...)."""

    reward: Tensor
    continuation: Tensor


class WorldModel(nn.Module):
    """Verbs: initial, observe, imagine, predict, decode; ``losses`` says how wrong it is."""

    Config = WorldModelConfig

    def __init__(self, config: WorldModelConfig, specs: Specs) -> None:
        super().__init__()
        self.config = config
        self.action_input = ActionInput(specs.action)
        self.encoder = Encoder(config.encoder, specs.observations)
        rssm = RSSM if config.rssm.latents == "categorical" else GaussianRSSM
        is_choice = specs.action.kind == "discrete"
        self.rssm = rssm(config.rssm, self.action_input.width, self.encoder.width, is_choice)
        self.features = self.rssm.features
        self.decoder = Decoder(config.decoder, specs.observations, config.rssm)
        self.reward = ScalarHead(config.reward, self.features)
        self.continuation = ChanceHead(config.continuation, self.features)

    def initial(self, count: int) -> Latent:
        return self.rssm.initial(count)

    def observe(self, latent: Latent, rows: Tensors, uniform: Tensor) -> Observed:
        """Follow rows (B, T) that have ``previous_action`` and ``is_first``."""
        actions = self.action_input(rows["previous_action"])
        return self.rssm.observe(latent, self.encoder(rows), actions, rows["is_first"], uniform)

    def imagine(self, latent: Latent, policy: Policy, uniform: Tensor) -> Dream:
        """Dream on from ``latent`` (N, ...) with a policy that gives actions (N, *shape); noise (H, N, S)."""
        actions: list[Tensor] = []

        def act(features: Features, step: int) -> Tensor:
            actions.append(policy(features, step))
            return self.action_input(actions[-1])

        seen = self.rssm.imagine(latent, act, uniform)
        return Dream(seen, torch.stack(actions))

    def dream(self, latent: Latent, policy: Policy, noise: Tensor) -> Tensor:
        """Features (H + 1, N, F) that gradients flow through; the policy gives encoded actions (N, A)."""
        return self.rssm.dream(latent, policy, noise)

    def predict(self, features: Features) -> Prediction:
        """Expected reward and chance to go on (discount included), without gradient."""
        return Prediction(self.predict_reward(features), self.predict_continuation(features))

    @torch.no_grad()
    def predict_reward(self, features: Features) -> Tensor:
        """The first of them alone."""
        return in_parts(lambda part: self.reward(part).mean(), features)

    @torch.no_grad()
    def predict_continuation(self, features: Features) -> Tensor:
        """The other alone."""
        return in_parts(lambda part: self.continuation(part).sigmoid(), features)

    def predict_through(self, features: Tensor) -> Prediction:
        """The same with the gradient of the features."""
        return Prediction(self.reward(features).expectation(), self.continuation(features).sigmoid())

    def split(self, features: Tensor) -> Latent:
        """Features as the latent that they were made of."""
        return Latent(*features.split([self.config.rssm.deter, self.rssm.width], -1))

    def decode(self, latent: Latent) -> dict[str, Tensor]:
        """Observations (...) as the env shows them."""
        return self.decoder.observations(latent)

    def losses(self, observed: Observed, rows: Tensors, discount: float, free_nats: float) -> dict[str, Tensor]:
        """Per row (B, T); targets are the rows themselves."""
        latent, posterior = observed
        features = latent.features
        dynamics, representation = self.rssm.divergences(posterior, latent.deter, free_nats)
        continues = (~rows["terminated"]).float() * discount
        return {
            "dynamics": dynamics,
            "representation": representation,
            "reconstruction": self.decoder.loss(latent, rows),
            "reward": self.reward(features).loss(rows["reward"])[0],
            "continuation": ChanceHead.loss(self.continuation(features), continues),
        }

    @torch.no_grad()
    def watch(self, observed: Observed) -> dict[str, Tensor]:
        """How much of the latent space is used."""
        return self.rssm.usage(observed.posterior)


class ActionInput(nn.Module):
    """Actions (..., *shape) as vectors (..., A): numbers as they are, choices one-hot."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.shape_length = len(action.shape)
        self.one_hot = OneHot(action.classes) if action.classes else None
        self.parts = nn.ModuleList(map(ActionInput, action.parts))
        self.widths = [part.width for part in action.parts]
        self.part_shapes = [part.shape for part in action.parts]
        self.width = action.size

    def forward(self, action: Tensor) -> Tensor:
        leading = action.shape[: action.ndim - self.shape_length]
        if self.widths:
            columns = zip(self.parts, self.part_shapes, action.split(self.widths, -1), strict=True)
            return torch.cat([part(own.reshape(*leading, *shape)) for part, shape, own in columns], -1)
        flat = action.reshape(leading.numel(), -1)
        return (flat if self.one_hot is None else self.one_hot(flat.long())).view(*leading, self.width)


class Encoder(nn.Module):
    """Observations (B, T, ...) as one vector of tokens (B, T, E)."""

    def __init__(self, config: CodecConfig, observations: Mapping[str, ObservationSpec]) -> None:
        super().__init__()
        images, others = split_observations(observations)
        self.image_keys, self.other_keys = list(images), list(others)
        self.num_pressed = 0
        """How many numbers of the vectors symlog presses: all but the zeros and ones that stand for indices."""
        self.width = 0
        if others:
            self.inputs = VectorInput(others)
            self.num_pressed = self.inputs.plain_width if config.symlog else 0
            self.layers = make_dense(self.inputs.width, config.units, config.layers)
            self.width += config.units
        if images:
            height, width = common_size(images)
            self.pyramid = ImageEncoder(config, height, width, sum(spec.shape[2] for spec in images.values()))
            self.width += self.pyramid.width

    @in_precision
    def forward(self, rows: Tensors) -> Tensor:
        flat = {key: rows[key].flatten(0, 1) for key in (*self.other_keys, *self.image_keys)}
        parts = [self._vectors(flat)] if self.other_keys else []
        if self.image_keys:
            images = [flat[key] for key in self.image_keys]
            image = images[0] if len(images) == 1 else torch.cat(images, -1)
            parts.append(self.pyramid(image.float() / 255 - 0.5))
        tokens = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return tokens.view(*rows["is_first"].shape, -1)

    def _vectors(self, flat: Tensors) -> Tensor:
        vectors, count = self.inputs(flat), self.num_pressed
        if count == vectors.shape[1]:  # nearly always: there are no indices
            return self.layers(symlog(vectors))
        return self.layers(torch.cat([symlog(vectors[:, :count]), vectors[:, count:]], 1))


class Decoder(nn.Module):
    """Latents back to the observations that the encoder took in."""

    def __init__(self, config: CodecConfig, observations: Mapping[str, ObservationSpec], rssm: RSSMConfig) -> None:
        super().__init__()
        self.images, self.others = split_observations(observations)
        self.is_pressed = config.symlog
        latent = rssm.width
        if self.others:
            self.layers = make_dense(rssm.deter + latent, config.units, config.layers)
            self.output = make_linear(config.units, sum(spec.size for spec in self.others.values()))
        if self.images:
            channels = sum(spec.shape[2] for spec in self.images.values())
            size = (*common_size(self.images), channels)
            self.pyramid = ImageDecoder(config, size, rssm.deter, latent, config.units, rssm.blocks)

    def loss(self, latent: Latent, rows: Tensors) -> Tensor:
        """Squared errors, and cross entropy for indices, summed over all that is seen: (B, T)."""
        shape = latent.deter.shape[:-1]
        total = latent.deter.new_zeros(shape.numel())
        for key, predicted in self._outputs(latent).items():
            target = rows[key].flatten(0, len(shape) - 1)
            total = total + _loss_of(self._spec(key), predicted, target, self.is_pressed)
        return total.view(shape)

    @torch.no_grad()
    def start_at_mean(self, parts: Sequence[Tensors]) -> None:
        """Let images start at the mean brightness of each channel in these parts of a batch instead of at a half.

        Else the first hundred updates only darken or brighten everything. The latents are pulled along in that: each
        settles on one class, whatever is seen, and the image is ignored for long afterwards.
        """
        if not self.images or self.pyramid.output_bias.any():  # weights from elsewhere have a bias of their own
            return
        weights = torch.cat([rows.get("weight", torch.ones_like(rows["reward"])) for rows in parts])
        means = [_mean_brightness(torch.cat([rows[key] for rows in parts]), weights) for key in self.images]
        self.pyramid.output_bias.copy_(torch.cat(means).clamp(DARKEST, 1 - DARKEST).logit())

    @torch.no_grad()
    def observations(self, latent: Latent) -> dict[str, Tensor]:
        shape = latent.deter.shape[:-1]
        outputs = self._outputs(latent)
        shown = {key: _shown(self._spec(key), output, self.is_pressed) for key, output in outputs.items()}
        return {key: value.unflatten(0, shape) for key, value in shown.items()}

    @in_precision
    def _outputs(self, latent: Latent) -> dict[str, Tensor]:
        """For each key what the network says (N, ...)."""
        deter, stoch = (part.flatten(0, -2) for part in latent)
        outputs: dict[str, Tensor] = {}
        if self.others:
            flat = self.output(self.layers(torch.cat([deter, stoch], -1)))
            parts = flat.split([spec.size for spec in self.others.values()], -1)
            outputs |= dict(zip(self.others, parts, strict=True))
        if self.images:
            parts = self.pyramid(deter, stoch).split([spec.shape[2] for spec in self.images.values()], -1)
            outputs |= dict(zip(self.images, parts, strict=True))
        return outputs

    def _spec(self, key: str) -> ObservationSpec:
        return self.images[key] if key in self.images else self.others[key]


def split_observations(
    observations: Mapping[str, ObservationSpec],
) -> tuple[dict[str, ObservationSpec], dict[str, ObservationSpec]]:
    """Images, and everything else."""
    images = {key: spec for key, spec in observations.items() if spec.kind == "image"}
    return images, {key: spec for key, spec in observations.items() if key not in images}


def common_size(images: Mapping[str, ObservationSpec]) -> tuple[int, int]:
    """Height and width of all images; they are looked at side by side, as channels of one."""
    sizes = {spec.shape[:2] for spec in images.values()}
    if len(sizes) > 1:
        raise ConfigError(
            f"The images {', '.join(images)} differ in size: {sorted(sizes)}.", "Resize them with a wrapper."
        )
    height, width = sizes.pop()
    return height, width


def _mean_brightness(image: Tensor, weight: Tensor) -> Tensor:
    """Of each channel (C,) of images (B, T, H, W, C), between 0 and 1; rows (B, T) of weight 0 do not count."""
    brightness = image.float().mean((2, 3)) / 255  # (B, T, C)
    return (brightness * weight.unsqueeze(-1)).sum((0, 1)) / weight.sum().clamp(min=1)


def _loss_of(spec: ObservationSpec, predicted: Tensor, target: Tensor, is_pressed: bool) -> Tensor:
    if spec.kind == "image":
        return (predicted - target.float() / 255).square().flatten(1).sum(1)
    if spec.kind == "discrete":
        parts = zip(predicted.split(list(spec.classes), -1), target.reshape(len(target), -1).unbind(1), strict=True)
        return torch.stack([F.cross_entropy(logits, index, reduction="none") for logits, index in parts]).sum(0)
    scaled = target.float() / 255 if spec.dtype == "uint8" else target
    flat = scaled.reshape(len(scaled), -1)
    return (predicted - (symlog(flat) if is_pressed else flat)).square().sum(1)


def _shown(spec: ObservationSpec, predicted: Tensor, is_pressed: bool) -> Tensor:
    """An output as the observation that it stands for."""
    if spec.kind == "image":
        return (predicted * 255).round().to(torch.uint8)
    if spec.kind == "discrete":
        indices = [logits.argmax(-1) for logits in predicted.split(list(spec.classes), -1)]
        return torch.stack(indices, 1).view(-1, *spec.shape)
    shown = symexp(predicted) if is_pressed else predicted
    if spec.dtype == "uint8":
        shown = (shown * 255).round().clamp(0, 255).to(torch.uint8)
    return shown.view(-1, *spec.shape)
