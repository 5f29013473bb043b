"""The networks of soft actor-critic: an encoder, an ensemble of critics and a policy, in torch and in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reverie.agents.recurrent_replay import make_trunk
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.core.types import Array, Row
from reverie.nets.distributions import Categorical, SquashedGaussian
from reverie.nets.encoders import VectorInput, choose_network_kind
from reverie.nets.ensemble import EnsembleMLP
from reverie.nets.layers import initialise, make_mlp
from reverie.nets.numpy.mlp import NumpyEnsemble, NumpyInput, NumpyLayer, NumpyMLP, is_plain, make_numpy_layers

LOG_STD = (-20.0, 2.0)


class Encoder(nn.Module):
    """The config's network; without one vectors stay as they are, images meet convolutions and a normalised layer."""

    def __init__(self, config: Any, specs: Specs) -> None:
        super().__init__()
        kind = choose_network_kind(specs.observations)
        if config.network is not None:
            self.network: Any = make_trunk(config.network, specs.observations, config.sequence)
            self.width = self.network.features
        elif kind == "mlp":
            self.network = VectorInput(specs.observations)
            self.width = self.network.width
        else:
            network = registry.load("network", kind)
            settings = network.Config(units=(config.image_features,), activation="tanh", norm="layer")
            self.network = network(settings, specs.observations)
            self.width = config.image_features
        self.is_plain = isinstance(self.network, VectorInput)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.network(observation)


class Critics(nn.Module):
    """Encoder and ensemble: values (num_critics, B) of continuous actions, (num_critics, B, A) of discrete ones."""

    def __init__(self, config: Any, specs: Specs) -> None:
        super().__init__()
        self.encoder = Encoder(config, specs)
        discrete = specs.action.kind == "discrete"
        inputs = self.encoder.width + (0 if discrete else specs.action.size)
        outputs = specs.action.size if discrete else 1
        self.ensemble = EnsembleMLP(config.num_critics, inputs, config.units, outputs, config.activation, config.norm)
        if config.initialiser is not None:
            self.ensemble.initialise(config.initialiser)

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        if action is None:
            return self.ensemble(features)
        return self.ensemble(torch.cat([features, action], 1)).squeeze(-1)


class Actor(nn.Module):
    """The policy over features."""

    def __init__(self, config: Any, specs: Specs, inputs: int) -> None:
        super().__init__()
        self.discrete = specs.action.kind == "discrete"
        self.layers = make_mlp(inputs, config.units, config.activation, config.norm)
        if config.initialiser is not None:
            initialise(self.layers, config.initialiser)
        self.output = nn.Linear(config.units[-1], specs.action.size * (1 if self.discrete else 2))

    def forward(self, features: Tensor) -> Categorical | SquashedGaussian:
        output = self.output(self.layers(features))
        if self.discrete:
            return Categorical(output)
        mean, log_std = output.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))


class NumpyNetworks:
    """Policy and critics in numpy, for vector observations and continuous actions."""

    def __init__(self, actor: Actor, critics: Critics, targets: Critics) -> None:
        self.inputs = NumpyInput(critics.encoder.network)
        self.actor = NumpyMLP([*make_numpy_layers(actor.layers), NumpyLayer(actor.output)])
        self.critics, self.targets = NumpyEnsemble(critics.ensemble), NumpyEnsemble(targets.ensemble)

    def choose(self, now: Row, noise: Array | None) -> Array:
        mean, log_std = np.split(self.actor(self.inputs(now)), 2, axis=1)
        return np.tanh(mean if noise is None else mean + np.exp(np.clip(log_std, *LOG_STD)) * noise)

    def target_values(self, x: Array, action: Array) -> Array:
        return self.targets(np.concatenate([x, action], axis=1))[..., 0]

    def least_value(self, x: Array, action: Array, scale: Array) -> tuple[Array, Array]:
        """The smallest of the critics' values (B,), and its derivative by the action (B, A) times ``scale`` (B,)."""
        kept = self.critics.forward(np.concatenate([x, action], axis=1))
        values = kept[-1][..., 0]
        smallest, rows = values.argmin(0), np.arange(len(x))
        gradient = np.zeros_like(kept[-1])
        gradient[smallest, rows, 0] = scale
        return values[smallest, rows], self.critics.input_gradient(gradient, kept, begin=x.shape[1])


def has_numpy_form(actor: Actor, critics: Critics) -> bool:
    """Whether :class:`NumpyNetworks` can stand in for these."""
    layers = (actor.layers, critics.ensemble.layers)
    return not actor.discrete and critics.encoder.is_plain and all(map(is_plain, layers))
