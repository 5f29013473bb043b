"""The networks of soft actor-critic: an encoder, an ensemble of critics and an actor, for two kinds of actions.

:mod:`.numpy_soft_actor_critic` has the same networks in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reverie.agents.recurrent_replay import make_trunk
from reverie.core import registry
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Array, random_array
from reverie.nets.distributions import Categorical, SquashedGaussian
from reverie.nets.encoders import VectorInput, choose_network_kind
from reverie.nets.ensemble import EnsembleMLP
from reverie.nets.layers import initialise, make_mlp

LOG_STD = (-20.0, 2.0)


class Encoder(nn.Module):
    """The config's network. Without one, vectors stay as they are, and images get convolutions and a layer norm."""

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

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        features: Tensor = self.network(obs)
        return features


class Critics(nn.Module):
    """Encoder and ensemble: values (num_critics, B) of continuous actions, (num_critics, B, A) of discrete ones."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, config: Any, specs: Specs, actions: Actions) -> None:
        super().__init__()
        self.encoder = Encoder(config, specs)
        inputs = self.encoder.width + actions.critic_inputs
        self.ensemble = EnsembleMLP(
            config.num_critics, inputs, config.units, actions.critic_outputs, config.activation, config.norm
        )
        if config.initialiser is not None:
            self.ensemble.initialise(config.initialiser)

    def forward(self, features: Tensor, actions: Tensor | None = None) -> Tensor:
        values: Tensor = self.ensemble(features if actions is None else torch.cat([features, actions], 1))
        return values if actions is None else values.squeeze(-1)


class Actor(nn.Module):
    """The policy, from features."""

    def __init__(self, config: Any, features: int, actions: Actions) -> None:
        super().__init__()
        self.make_policy = actions.make_policy
        self.layers = make_mlp(features, config.units, config.activation, config.norm)
        if config.initialiser is not None:
            initialise(self.layers, config.initialiser)
        self.output = nn.Linear(config.units[-1], actions.actor_outputs)

    def forward(self, features: Tensor) -> Any:
        return self.make_policy(self.output(self.layers(features)))


# ---------------------------------------------------------------- continuous and discrete actions


class ContinuousActions:
    """Squashed Gaussian policies. A sampled action stands for the expectation over actions."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.actor_outputs, self.critic_inputs, self.critic_outputs = 2 * size, size, 1

    def sample_noise(self, rng: np.random.Generator, count: int) -> Array:  # (B, A)
        return random_array(rng, count, self.size)

    @staticmethod
    def make_policy(outputs: Tensor) -> SquashedGaussian:
        mean, log_std = outputs.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))

    def q_taken(self, critics: Critics, features: Tensor, actions: Tensor) -> Tensor:
        """Values (num_critics, B) of actions (B, A)."""
        return critics(features, actions)

    def soft_value(
        self, policy: SquashedGaussian, critics: Critics, features: Tensor, temperature: Tensor, noise: Tensor
    ) -> Tensor:
        """Values (B) of states: the lowest critic's, with entropy. Haarnoja et al. 2018, Eq. 3."""
        actions, log_probs = policy.sample_with_log_prob(noise)
        return critics(features, actions).amin(0) - temperature * log_probs

    def soft_loss(
        self, policy: SquashedGaussian, critics: Critics, features: Tensor, temperature: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Policy losses (B) and entropies (B). Haarnoja et al. 2018, Eq. 9."""
        actions, log_probs = policy.sample_with_log_prob(noise)  # Eq. 8
        return temperature * log_probs - critics(features, actions).amin(0), -log_probs


class DiscreteActions:
    """Categorical policies: Christodoulou 2019, Eq. 10 and 12, in place of Haarnoja et al. 2018, Eq. 3 and 9.

    Expectations are sums over all actions, so these methods ignore the noise.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.actor_outputs, self.critic_inputs, self.critic_outputs = size, 0, size

    def sample_noise(self, rng: np.random.Generator, count: int) -> Array:  # (B, A)
        return rng.random((count, self.size), dtype=np.float32)

    @staticmethod
    def make_policy(outputs: Tensor) -> Categorical:
        return Categorical(outputs)

    def q_taken(self, critics: Critics, features: Tensor, actions: Tensor) -> Tensor:
        """Values (num_critics, B) of actions (B, 1)."""
        q_values = critics(features)
        return q_values.gather(-1, actions.expand(len(q_values), -1, -1)).squeeze(-1)

    def soft_value(
        self, policy: Categorical, critics: Critics, features: Tensor, temperature: Tensor, noise: Tensor
    ) -> Tensor:
        """Values (B) of states: the lowest critic's, with entropy. Christodoulou 2019, Eq. 10."""
        q_values = critics(features).amin(0)
        return (policy.log_probs.exp() * (q_values - temperature * policy.log_probs)).sum(-1)

    def soft_loss(
        self, policy: Categorical, critics: Critics, features: Tensor, temperature: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Policy losses (B) and entropies (B). Christodoulou 2019, Eq. 12."""
        q_values = critics(features).amin(0).detach()
        probs, entropies = policy.log_probs.exp(), policy.entropy()
        return (probs * (temperature * policy.log_probs - q_values)).sum(-1), entropies


Actions = ContinuousActions | DiscreteActions


def make_actions(action: ActionSpec) -> Actions:
    """The form of SAC for an env's actions."""
    return DiscreteActions(action.size) if action.kind == "discrete" else ContinuousActions(action.size)
