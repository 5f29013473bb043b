"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications".

Continuous actions use a squashed Gaussian. For discrete ones expectations over all actions replace samples
(Christodoulou 2019). With images, a convolutional encoder is trained by the critics alone, on randomly shifted pictures
(Kostrikov et al. 2021, "Image Augmentation Is All You Need"). The critics are one batched ensemble.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from reverie import backend
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.reads import Read, Transitions
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.types import (
    Array,
    Batch,
    Carry,
    Clock,
    Mode,
    Row,
    State,
    Update,
    observation_keys,
    random_array,
)  # fmt: skip
from reverie.data.rows import transitions
from reverie.functional.losses import weighted_mean
from reverie.nets.distributions import Categorical, SquashedGaussian
from reverie.nets.encoders import VectorInput, choose_network_kind
from reverie.nets.ensemble import EnsembleMLP
from reverie.nets.images import random_shift
from reverie.nets.layers import Activation, make_mlp
from reverie.nets.networks import make_network
from reverie.nets.optim import Adam, flatten

LOG_STD = (-20.0, 2.0)
Tensors = Mapping[str, Tensor]


class FixedTemperature(nn.Module):
    """A weight of the entropy that stays."""

    class Config(ComponentConfig):
        kind: str = "fixed"
        value: float = Field(0.2, ge=0)
        """Weight of the entropy."""

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(config.value), persistent=False)

    def forward(self) -> Tensor:
        return self.value

    def loss(self, entropy: Tensor) -> Tensor:
        return torch.zeros_like(entropy)


class LearnedTemperature(nn.Module):
    """A weight that keeps the policy's entropy at a target."""

    class Config(ComponentConfig):
        kind: str = "learned"
        initial: float = Field(1.0, gt=0)
        """Weight of the entropy at the start."""
        target_entropy: float | None = None
        """Entropy to hold; empty: minus the number of action dimensions, or 0.98 of the greatest for discrete ones."""

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(config.initial)))
        discrete = 0.98 * math.log(specs.action.size) if specs.action.kind == "discrete" else -float(specs.action.size)
        self.target = discrete if config.target_entropy is None else config.target_entropy

    def forward(self) -> Tensor:
        return self.log_value.detach().exp()

    def loss(self, entropy: Tensor) -> Tensor:
        return self.log_value * (entropy.detach() - self.target)


class SACConfig(ComponentConfig):
    """Soft actor-critic."""

    built_once = frozenset({"num_critics", "image_features"})

    kind: str = "sac"
    learning_rate: Rate = constant(3e-4)
    """Step size of the optimiser, for policy, critics and temperature."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    batch_size: int = Field(256, ge=1)
    """Transitions per update."""
    num_critics: int = Field(2, ge=1)
    """How many critics there are; the smallest value counts."""
    temperature: Annotated[ComponentConfig, Component("temperature")] = LearnedTemperature.Config()
    """Weight of the entropy: learned or fixed."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """How far the target critics move towards the critics with every update."""
    units: tuple[int, ...] = Field((256, 256), min_length=1)
    """Widths of the layers of policy and critics."""
    activation: Activation = "relu"
    """Between these layers."""
    network: Annotated[ComponentConfig, Component("network")] | None = None
    """An encoder that policy and critics share, learnt by the critics; empty: one for images, none for vectors."""
    image_features: int = Field(50, ge=1)
    """Features that the encoder makes of images, unless ``network`` says what it is."""
    image_shift: int = Field(4, ge=0)
    """Pixels by which images are shifted at random in updates."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """The optimiser."""


class Encoder(nn.Module):
    """The config's network; without one vectors stay as they are, images meet convolutions and a normalised layer."""

    def __init__(self, config: SACConfig, specs: Specs) -> None:
        super().__init__()
        kind = choose_network_kind(specs.observations)
        if config.network is not None:
            self.network: Any = make_network(config.network, specs.observations)
            self.width = self.network.features
        elif kind == "mlp":
            self.network = VectorInput(specs.observations)
            self.width = self.network.width
        else:
            network = registry.load("network", kind)
            settings = network.Config(units=(config.image_features,), activation="tanh", norm="layer")
            self.network = network(settings, specs.observations)
            self.width = config.image_features
        self.has_images = kind != "mlp"

    def forward(self, observation: Tensors) -> Tensor:
        return self.network(observation)


class Critics(nn.Module):
    """Encoder and ensemble: values (num_critics, B) of continuous actions, (num_critics, B, A) of discrete ones."""

    def __init__(self, config: SACConfig, specs: Specs) -> None:
        super().__init__()
        self.encoder = Encoder(config, specs)
        discrete = specs.action.kind == "discrete"
        inputs = self.encoder.width + (0 if discrete else specs.action.size)
        outputs = specs.action.size if discrete else 1
        self.ensemble = EnsembleMLP(config.num_critics, inputs, config.units, outputs, config.activation)

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        if action is None:
            return self.ensemble(features)
        return self.ensemble(torch.cat([features, action], 1)).squeeze(-1)


class Actor(nn.Module):
    """The policy over features."""

    def __init__(self, config: SACConfig, specs: Specs, inputs: int) -> None:
        super().__init__()
        self.discrete = specs.action.kind == "discrete"
        self.layers = make_mlp(inputs, config.units, config.activation)
        self.output = nn.Linear(config.units[-1], specs.action.size * (1 if self.discrete else 2))

    def forward(self, features: Tensor) -> Categorical | SquashedGaussian:
        output = self.output(self.layers(features))
        if self.discrete:
            return Categorical(output)
        mean, log_std = output.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))


class SAC:
    """An agent for continuous and discrete actions."""

    Config = SACConfig
    hooks = ("update",)

    def __init__(self, config: SACConfig, specs: Specs, rng: np.random.Generator) -> None:
        _check_actions(specs)
        self.config = config
        self.specs = specs
        self.discrete = specs.action.kind == "discrete"
        with backend.seeded(rng):
            self.critics = Critics(config, specs).to(backend.device())
            self.actor = Actor(config, specs, self.critics.encoder.width).to(backend.device())
            self.temperature = registry.load("temperature", config.temperature.kind)(config.temperature, specs)
        self.temperature.to(backend.device())
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.targets_flat = flatten(list(self.targets.parameters()))
        optimizer = registry.load("optimizer", config.optimizer.kind)
        self.critic_optimizer = optimizer(config.optimizer, self.critics.parameters())
        learned = [*self.actor.parameters(), *self.temperature.parameters()]
        self.actor_optimizer = optimizer(config.optimizer, learned)

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": Transitions(self.config.batch_size)}

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
        policy = self.actor(self.critics.encoder(observation))
        action = policy.mode() if mode is Mode.EVALUATE else policy.sample(self._noise(rng, len(now["is_first"])))
        return action.reshape(-1, *self.specs.action.shape).cpu().numpy(), carry, {}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One step of critics, policy and temperature on transitions (B, 2)."""
        rows = backend.to_tensors(batch)
        now, then, weight = transitions(rows)
        observation, following = (
            {key: self._augment(key, side[key][:, 0], rng) for key in observation_keys(side)} for side in (now, then)
        )
        weight, size = weight[:, 0], len(weight)
        action = now["action"][:, 0].reshape(size, -1)
        target = self._target(following, then["reward"][:, 0], then["terminated"][:, 0], self._noise(rng, size))
        features = self.critics.encoder(observation)
        values = self.critics(features) if self.discrete else self.critics(features, action)
        if self.discrete:
            values = values.gather(-1, action.expand(self.config.num_critics, -1, -1)).squeeze(-1)
        errors = (values - target).square().sum(0)
        critic_loss = 0.5 * weighted_mean(errors, weight)
        learning_rate = self.config.learning_rate.at(clock)
        self.critic_optimizer.step(critic_loss, learning_rate)
        actor_loss, entropy = self._actor_loss(features.detach(), self._noise(rng, size), weight)
        temperature_loss = weighted_mean(self.temperature.loss(entropy), weight)
        self.actor_optimizer.step(actor_loss + temperature_loss, learning_rate)
        self.targets_flat.lerp_(self.critic_optimizer.flat.data, self.config.target_rate)
        metrics = {
            "loss": (critic_loss + actor_loss).detach(), "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss.detach(), "entropy": weighted_mean(entropy.detach(), weight),
            "temperature": self.temperature(), "value": weighted_mean(values.detach().mean(0), weight),
        }  # fmt: skip
        return Update(metrics)

    @torch.no_grad()
    def _target(self, observation: Tensors, reward: Tensor, terminated: Tensor, noise: Tensor) -> Tensor:
        """Reward plus the soft value of the state reached; nothing follows a terminal one."""
        policy = self.actor(self.critics.encoder(observation))
        features, temperature = self.targets.encoder(observation), self.temperature()
        if self.discrete:
            probability = policy.log_probs.exp()
            least = self.targets(features).amin(0)
            value = (probability * (least - temperature * policy.log_probs)).sum(-1)
        else:
            action, log_prob = policy.sample_with_log_prob(noise)
            value = self.targets(features, action).amin(0) - temperature * log_prob
        return reward + self.config.gamma * value * ~terminated

    def _actor_loss(self, features: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's loss and its entropy per sample. The critics' own gradients from here are zeroed before use."""
        policy, temperature = self.actor(features), self.temperature()
        if self.discrete:
            least = self.critics(features).amin(0).detach()
            probability, entropy = policy.log_probs.exp(), policy.entropy()
            losses = (probability * (temperature * policy.log_probs - least)).sum(-1)
        else:
            action, log_prob = policy.sample_with_log_prob(noise)
            losses = temperature * log_prob - self.critics(features, action).amin(0)
            entropy = -log_prob
        return weighted_mean(losses, weight), entropy

    def _augment(self, key: str, observation: Tensor, rng: np.random.Generator) -> Tensor:
        shift, is_image = self.config.image_shift, self.specs.observations[key].kind == "image"
        return random_shift(observation, shift, rng) if shift and is_image else observation

    def _noise(self, rng: np.random.Generator, count: int) -> Tensor:
        size = self.specs.action.size
        noise = rng.random((count, size), dtype=np.float32) if self.discrete else random_array(rng, count, size)
        return torch.as_tensor(noise, device=backend.device())

    # ---------------------------------------------------------------- memory

    def _modules(self) -> dict[str, nn.Module]:
        return {"critics": self.critics, "actor": self.actor, "temperature": self.temperature}

    def policy_state(self) -> State:
        return {"actor": backend.module_state(self.actor), "encoder": backend.module_state(self.critics.encoder)}

    def load_policy_state(self, state: State) -> None:
        backend.load_module_state(self.actor, state["actor"])
        backend.load_module_state(self.critics.encoder, state["encoder"])

    def state(self) -> State:
        modules = {name: backend.module_state(module) for name, module in self._modules().items()}
        return {
            **modules,
            "targets": backend.module_state(self.targets),
            "critic_optimizer": self.critic_optimizer.state(),
            "actor_optimizer": self.actor_optimizer.state(),
        }

    def load_state(self, state: State) -> None:
        for name, module in {**self._modules(), "targets": self.targets}.items():
            backend.load_module_state(module, state[name])
        self.critic_optimizer.load_state(state["critic_optimizer"])
        self.actor_optimizer.load_state(state["actor_optimizer"])


def _check_actions(specs: Specs) -> None:
    if specs.action.kind not in ("continuous", "discrete"):
        raise ConfigError(f"SAC has no form for {specs.action.kind} actions.", "Try ppo.")
    if specs.action.kind == "continuous" and not specs.action.is_scaled:
        raise ConfigError(
            "SAC needs bounded actions; this env's bounds are infinite.",
            "Wrap the env with gymnasium.wrappers.RescaleAction, or try ppo.",
        )
