"""Trunks: any mix of images, vectors and indices to one feature vector.

All are built as ``Network(config, observations)`` and map ``{key: (B, ...)}`` to ``(B, features)``. Images are
uint8 (H, W, C) and scaled to [0, 1]. They stay channels-last, which is fastest for convolutions on CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.specs import ObservationSpec
from reverie.nets.layers import Activation, Initialiser, Norm, OneHot, channels_last, make_activation, make_mlp

Observations = Mapping[str, ObservationSpec]
SMALLEST_IMAGE = 36  # with fewer pixels nothing is left after the Nature CNN's strides


class NetworkConfig(ComponentConfig):
    """A trunk. The fully connected layers of ``units`` come last."""

    units: tuple[int, ...] = (64, 64)
    """Widths of the fully connected layers."""
    activation: Activation = "tanh"
    """Between the layers."""
    norm: Norm = "none"
    """Normalisation after each fully connected layer."""
    initialiser: Initialiser | None = None
    """Initial weights: orthogonal, xavier, kaiming or torch's own. Empty: the algorithm's default."""


class VectorInput(nn.Module):
    """All keys but images as one flat vector: floats unchanged, indices one-hot."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.plain = [key for key, spec in observations.items() if spec.kind != "discrete"]
        indices = {key: spec for key, spec in observations.items() if spec.kind == "discrete"}
        self.index_keys = list(indices)
        self.one_hot = nn.ModuleList([OneHot(spec.classes) for spec in indices.values()])
        self.bytes = {key for key, spec in observations.items() if spec.dtype == "uint8"}
        self.plain_width = sum(observations[key].size for key in self.plain)
        """Columns of the floats, which come first."""
        self.width = sum(spec.size for spec in observations.values())

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = []
        for key in self.plain:
            values = observation[key]
            flat = values.flatten(1) if values.ndim > 1 else values.unsqueeze(1)  # (B, width)
            parts.append(flat.float() / 255 if key in self.bytes else flat)
        parts += [layer(observation[key]) for key, layer in zip(self.index_keys, self.one_hot, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class MLP(nn.Module):
    """Everything flattened into one vector, then fully connected layers."""

    class Config(NetworkConfig):
        kind: str = "mlp"

    def __init__(self, config: NetworkConfig, observations: Observations) -> None:
        super().__init__()
        self.inputs = VectorInput(observations)
        self.layers = make_mlp(self.inputs.width, config.units, config.activation, config.norm)
        self.features = config.units[-1] if config.units else self.inputs.width

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        features: Tensor = self.layers(self.inputs(observation))
        return features


class ImageNetwork(nn.Module):
    """Convolutions over the images, joined with the other keys, then fully connected layers."""

    def __init__(self, config: NetworkConfig, observations: Observations) -> None:
        super().__init__()
        images = {key: spec for key, spec in observations.items() if spec.kind == "image"}
        if not images:
            raise ConfigError(
                f"algorithm.network.kind={config.kind} needs an image, and this env has none.",
                "Set algorithm.network.kind=mlp, or add the wrapper {kind: render_pixels}.",
            )
        self.image_keys = list(images)
        self.convolutions = nn.ModuleList([self.make_convolutions(spec) for spec in images.values()])
        rest = {key: spec for key, spec in observations.items() if spec.kind != "image"}
        self.rest = VectorInput(rest) if rest else None
        with torch.no_grad():
            examples = {key: torch.zeros(1, *spec.shape, dtype=torch.uint8) for key, spec in images.items()}
            width = self.encode_images(examples).shape[1] + (self.rest.width if self.rest else 0)
        self.layers = make_mlp(width, config.units, config.activation, config.norm)
        self.features = config.units[-1] if config.units else width

    def make_convolutions(self, spec: ObservationSpec) -> nn.Module:
        raise NotImplementedError

    def encode_images(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = []
        for key, convolutions in zip(self.image_keys, self.convolutions, strict=True):
            image = observation[key].permute(0, 3, 1, 2)  # a channels-last view, no copy
            scaled = image.to(torch.float32, copy=True).mul_(1 / 255)
            parts.append(convolutions(scaled).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        encoded = self.encode_images(observation)
        if self.rest is not None:
            encoded = torch.cat([encoded, self.rest(observation)], 1)
        features: Tensor = self.layers(encoded)
        return features


class NatureCNN(ImageNetwork):
    """The three convolutions of Mnih et al. 2015, "Human-level control through deep RL"."""

    class Config(NetworkConfig):
        kind: str = "nature"
        units: tuple[int, ...] = (512,)
        activation: Activation = "relu"

    def make_convolutions(self, spec: ObservationSpec) -> nn.Module:
        if min(spec.shape[:2]) < SMALLEST_IMAGE:
            raise ConfigError(
                f"The image is {spec.shape[0]}x{spec.shape[1]}; the nature network needs {SMALLEST_IMAGE} or more.",
                "Set algorithm.network.kind=impala, or enlarge it with the wrapper {kind: resize}.",
            )
        layers = nn.Sequential(
            nn.Conv2d(spec.shape[2], 32, 8, 4), nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(inplace=True),
        )  # fmt: skip
        return channels_last(layers)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        change: Tensor = self.layers(image)
        return image + change


class ImpalaCNN(ImageNetwork):
    """The residual network of Espeholt et al. 2018, "IMPALA", without its LSTM."""

    class Config(NetworkConfig):
        kind: str = "impala"
        units: tuple[int, ...] = (256,)
        activation: Activation = "relu"
        channels: tuple[int, ...] = (16, 32, 32)
        """Channels of the stages; each halves the image."""

    def __init__(self, config: Config, observations: Observations) -> None:
        self.channels = config.channels
        super().__init__(config, observations)

    def make_convolutions(self, spec: ObservationSpec) -> nn.Module:
        layers: list[nn.Module] = []
        before = spec.shape[2]
        for channels in self.channels:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [ResidualBlock(channels), ResidualBlock(channels)]
            before = channels
        return channels_last(nn.Sequential(*layers, make_activation("relu")))


class AutoNetwork:
    """Placeholder in configs until the spaces are known. :func:`choose_network_kind` then chooses the kind."""

    class Config(NetworkConfig):
        kind: str = "auto"
        units: tuple[int, ...] | None = None  # type: ignore[assignment]
        activation: Activation | None = None  # type: ignore[assignment]
        norm: Norm | None = None  # type: ignore[assignment]

    @staticmethod
    def choose_kind(observations: Observations) -> str:
        """The kind that ``auto`` stands for with these observations."""
        return choose_network_kind(observations)


def choose_network_kind(observations: Observations) -> str:
    """The kind that ``auto`` stands for: a CNN if there are images, otherwise an MLP."""
    images = [spec for spec in observations.values() if spec.kind == "image"]
    if not images:
        return "mlp"
    return "nature" if min(min(spec.shape[:2]) for spec in images) >= SMALLEST_IMAGE else "impala"
