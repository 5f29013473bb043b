"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905).

Equation numbers are those of that paper unless another is named. For discrete actions, sums over all actions replace
samples: Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings". For images, the critics train a
convolutional encoder on randomly shifted images: Kostrikov et al. 2021, "Image Augmentation Is All You Need". The
critics are one batched ensemble. A recurrent encoder learns from sequences: :mod:`reverie.agents.recurrent_replay`.
Small networks run in numpy: :mod:`reverie.agents.numpy_soft_actor_critic`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.agents.action_network import MostLikelyAction
from reverie.agents.inspection import describe_policy, inspect_rows
from reverie.agents.numpy_soft_actor_critic import NumpySoftActorCritic, has_numpy_form
from reverie.agents.recurrent_replay import (
    SequenceConfig,
    check_targets,
    encode,
    initial_carry,
    make_replay,
    to_tensors,
)  # fmt: skip
from reverie.agents.sac_engine import SACEngine
from reverie.agents.soft_actor_critic import Actor, Critics, make_actions
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read
from reverie.core.schedule import Rate, constant
from reverie.core.specs import ObservationSpec, Specs
from reverie.core.traits import MirroredInNumpy
from reverie.core.types import Array, Batch, Carry, Clock, Inspection, Mode, Row, State, Update
from reverie.functional.transition_batch import TransitionBatch, split
from reverie.nets.backend_module import to_backend
from reverie.nets.images import random_shift
from reverie.nets.layers import Activation, Initialiser, Norm
from reverie.nets.optim import Adam, FlatOptimizer, Loss, Result, evaluate, flatten
from reverie.nets.temperature import LearnedTemperature

DRQ_SHIFT = 4 / 84
"""Largest random shift of Kostrikov et al. 2021, as a fraction of the image's side."""


class SACConfig(ComponentConfig):
    """Soft actor-critic."""

    built_once = frozenset({"num_critics", "image_features", "initialiser"})

    kind: str = "sac"
    learning_rate: Rate = constant(3e-4)
    """Step size of the optimisers of actor, critics and temperature."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    batch_size: int = Field(256, ge=1)
    """Transitions per update. Sequences (see ``sequence``) if ``network`` is recurrent."""
    n_step: int = Field(1, ge=1)
    """Rewards that are summed before the target bootstraps. The entropy of the steps between is left out."""
    num_critics: int = Field(2, ge=1)
    """Number of critics. The lowest of their values counts."""
    temperature: Annotated[ComponentConfig, Component("temperature")] = LearnedTemperature.Config()
    """Weight of the entropy: learned or fixed."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """Step of the target critics towards the critics, at every update."""
    units: tuple[int, ...] = Field((256, 256), min_length=1)
    """Widths of the layers of actor and critics."""
    activation: Activation = "relu"
    """Activation of these layers."""
    norm: Norm = "none"
    """Normalisation of these layers."""
    initialiser: Initialiser | None = None
    """Initial weights of these layers: orthogonal, xavier, kaiming or torch. Empty means torch's default."""
    network: Annotated[ComponentConfig, Component("network")] | None = None
    """Encoder that actor and critics share; the critics train it. Empty: convolutions for images, none for vectors."""
    sequence: SequenceConfig = SequenceConfig()
    """What is replayed if ``network`` is recurrent."""
    image_features: int = Field(50, ge=1)
    """Width of the features of images, unless ``network`` is set."""
    image_shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Largest random shift of images in updates, in pixels; auto: 4 per 84 pixels of the shorter side."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """Update rule of actor, critics and temperature."""

    @model_validator(mode="after")
    def _has_targets(self) -> SACConfig:
        check_targets(self.sequence, self.network, self.n_step)
        return self


class SACBatch(NamedTuple):
    """The fields of :class:`TransitionBatch`, flat, and noise for the actions that the losses sample."""

    obs: dict[str, Tensor]
    next_obs: dict[str, Tensor]
    actions: Tensor  # (N, A)
    rewards: Tensor  # (N,), as the next three
    discounts: Tensor
    weights: Tensor
    importance_weights: Tensor
    next_noise: Tensor  # (N, A)
    noise: Tensor  # (N, A)
    features: Tensor | None = None  # (N, F): encoded obs, for the actor


class SAC(MirroredInNumpy, in_numpy=("choose", "gradient_step", "critic_loss", "actor_loss", "make_microbatches")):
    """For all observations, and for continuous and discrete actions."""

    Config = SACConfig
    traits = Traits(
        actions=("continuous", "discrete"), unbounded_actions=False, recurrent=True, priorities=True,
        microbatches=True, numpy_engine=True, observes=True,
    )  # fmt: skip

    def __init__(self, config: SACConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.action_kind = make_actions(specs.action)
        self.replay = make_replay(config.network, config.sequence)
        with seeded(rng):
            self.critics = to_backend(Critics(config, specs, self.action_kind), backend)
            self.actor = to_backend(Actor(config, self.critics.encoder.width, self.action_kind), backend)
            self.temperature = registry.load("temperature", config.temperature.kind)(config.temperature, specs)
        self.temperature.to(backend.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.target_flat = flatten(list(self.target_critics.parameters()))
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.critic_optimizer = optimizer(config.optimizer, self.critics.parameters())
        trained = [*self.actor.parameters(), *self.temperature.parameters()]
        self.actor_optimizer = optimizer(config.optimizer, trained)
        self.numpy_engine: NumpySoftActorCritic | None = None
        may_use_numpy = backend.engine == "numpy" and self.traits.numpy_engine
        if may_use_numpy and has_numpy_form(self.action_kind, self.actor, self.critics):
            self.numpy_engine = NumpySoftActorCritic(
                self.actor, self.critics, self.target_critics, self.temperature, self.actor_optimizer,
                self.critic_optimizer, backend,
            )  # fmt: skip

    @property
    def engine(self) -> SACEngine:
        """What computes actions and gradient steps. The torch form is this class."""
        return self.numpy_engine or self

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": self.replay.read(self.config.batch_size, self.config.n_step)}

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return initial_carry(self.critics.encoder.network, num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        noise = None if mode is Mode.EVALUATE else self.action_kind.sample_noise(rng, len(now["is_first"]))
        if mode is Mode.OBSERVE and not carry:  # actions are ignored; the noise keeps the stream aligned
            return self.specs.action.zeros(len(now["is_first"])), carry, {}
        actions, carry = self.engine.choose(now, carry, noise)
        return actions.reshape(-1, *self.specs.action.shape), carry, {}

    @torch.inference_mode()
    def choose(self, now: Row, carry: Carry, noise: Array | None) -> tuple[Array, Carry]:
        features, carry = encode(self.critics.encoder.network, now, carry, self.backend)
        policy = self.actor(features)
        actions = policy.mode() if noise is None else policy.sample(self.backend.to_tensor(noise))
        return actions.cpu().numpy(), carry

    def action_network(self) -> nn.Module | None:
        encoder = self.critics.encoder
        return None if self.initial_carry(1) else MostLikelyAction(encoder, self.actor, self.specs.action.shape)

    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        """Without values: saved policies hold no critics."""
        with torch.inference_mode():
            return inspect_rows(self._inspect_row, rows, self.initial_carry(len(rows["is_first"])))

    def _inspect_row(self, now: Row, carry: Carry) -> tuple[Row, None, Carry]:
        features, carry = encode(self.critics.encoder.network, now, carry, self.backend)
        policy = describe_policy(self.actor(features))
        return policy | {"mode": policy["mode"].reshape(-1, *self.specs.action.shape)}, None, carry

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of critics, actor and temperature, on transitions (B, n + 1) or sequences (B, T)."""
        transitions = self.replay.transitions(batch, self.config.gamma, self.config.n_step)
        critic, actor = self.engine.gradient_step(transitions, self.config.learning_rate.at(clock), rng)
        # Both vectors hold parameters in the same order: target_critics is a copy of critics.
        self.target_flat.lerp_(self.critic_optimizer.flat.data, self.config.target_rate)
        metrics = critic.metrics | actor.metrics | {
            "loss": critic.metrics["critic_loss"] + actor.metrics["actor_loss"], "temperature": self.temperature(),
            "grad_norm_critic": critic.grad_norm, "grad_norm_actor": actor.grad_norm,
            **self.critic_optimizer.grad_norms_if_due({"trunk": [self.critics.encoder]}, critic.grad_norm),
        }  # fmt: skip
        if "importance" not in batch:
            return Update(metrics)
        return Update(metrics, write_back=self.replay.write_priorities(batch, transitions, critic.aux["td_errors"]))

    def gradient_step(
        self, transitions: TransitionBatch, learning_rate: float, rng: np.random.Generator
    ) -> tuple[Result, Result]:
        microbatches = self.make_microbatches(transitions, rng)
        critic = self.critic_optimizer.minimise(self.critic_loss, microbatches, learning_rate)
        encoded = with_features(microbatches, critic.aux["features"])
        return critic, self.actor_optimizer.minimise(self.actor_loss, encoded, learning_rate)

    def critic_loss(self, batch: SACBatch) -> Loss:
        """Half the squared TD errors, summed over the critics."""
        with torch.no_grad():
            next_policy = self.actor(self.critics.encoder(batch.next_obs))
            next_features = self.target_critics.encoder(batch.next_obs)
            next_values = self.action_kind.soft_value(
                next_policy, self.target_critics, next_features, self.temperature(), batch.next_noise
            )  # Eq. 3; discrete actions: Christodoulou 2019, Eq. 10
            targets = batch.rewards + batch.discounts * next_values  # Eq. 2
        features = self.critics.encoder(batch.obs)
        q_values = self.action_kind.q_taken(self.critics, features, batch.actions)  # (num_critics, N)
        errors = q_values - targets
        loss = 0.5 * torch.dot(errors.square().sum(0), batch.importance_weights)  # Eq. 5
        value = torch.dot(q_values.detach().mean(0), batch.weights)
        td_errors = errors.detach().abs().mean(0)
        return Loss(loss, {"critic_loss": loss, "value": value}, {"td_errors": td_errors, "features": features})

    def actor_loss(self, batch: SACBatch) -> Loss:
        """The losses of policy and temperature. Gradients are taken for their parameters only."""
        assert batch.features is not None
        policy = self.actor(batch.features)
        losses, entropies = self.action_kind.soft_loss(
            policy, self.critics, batch.features, self.temperature(), batch.noise
        )  # Eq. 9; discrete actions: Christodoulou 2019, Eq. 12
        policy_loss = torch.dot(losses, batch.weights)
        temperature_loss = torch.dot(self.temperature.loss(entropies), batch.weights)  # Eq. 18
        entropy = torch.dot(entropies.detach(), batch.weights)
        return Loss(policy_loss + temperature_loss, {"actor_loss": policy_loss, "entropy": entropy})

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The losses on held-out data."""
        transitions = self.replay.transitions(batch, self.config.gamma, self.config.n_step)
        microbatches = self.make_microbatches(transitions, rng)
        critic = evaluate(self.critic_loss, microbatches)
        actor = evaluate(self.actor_loss, with_features(microbatches, critic.aux["features"]))
        return {name: float(value) for name, value in (critic.metrics | actor.metrics).items()}

    # ---------------------------------------------------------------- batches

    def make_microbatches(self, transitions: TransitionBatch, rng: np.random.Generator) -> list[SACBatch]:
        """Augmented observations and noise are drawn for the whole batch, so the number of microbatches is free."""
        tensors = to_tensors(transitions, self.backend)
        obs, next_obs = self.augment(tensors.obs, rng), self.augment(tensors.next_obs, rng)
        noise = (self.backend.to_tensor(self.action_kind.sample_noise(rng, len(tensors.weights))) for _ in range(2))
        return split(
            SACBatch(obs, next_obs, *tensors[2:], *noise), self.backend.microbatch_size(len(transitions.weights))
        )

    def augment(self, obs: Mapping[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """Randomly shifted images. Other observations stay as they are."""
        shifts = {key: self._max_shift(spec) for key, spec in self.specs.observations.items() if spec.kind == "image"}
        return {key: random_shift(x, shifts[key], rng) if shifts.get(key) else x for key, x in obs.items()}

    def _max_shift(self, image: ObservationSpec) -> int:
        shift = self.config.image_shift
        return round(DRQ_SHIFT * min(image.shape[:2])) if shift == "auto" else shift

    # ---------------------------------------------------------------- state

    def _modules(self) -> dict[str, nn.Module]:
        return {"critics": self.critics, "actor": self.actor, "temperature": self.temperature,
                "targets": self.target_critics}  # fmt: skip

    def policy_state(self) -> State:
        return {"actor": module_state(self.actor), "encoder": module_state(self.critics.encoder)}

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.actor, state["actor"])
        for critics in (self.critics, self.target_critics):  # the target encoder starts as a copy
            load_module_state(critics.encoder, state["encoder"])

    def state(self) -> State:
        modules = {name: module_state(module) for name, module in self._modules().items()}
        optimizers = {"critic_optimizer": self.critic_optimizer, "actor_optimizer": self.actor_optimizer}
        return modules | {name: optimizer.state() for name, optimizer in optimizers.items()}

    def load_state(self, state: State) -> None:
        for name, module in self._modules().items():
            load_module_state(module, state[name])
        self.critic_optimizer.load_state(state["critic_optimizer"])
        self.actor_optimizer.load_state(state["actor_optimizer"])


def with_features(microbatches: list[SACBatch], features: Tensor) -> list[SACBatch]:
    """The same microbatches with their encoded observations."""
    parts = features.split([len(microbatch.weights) for microbatch in microbatches])
    return [microbatch._replace(features=part) for microbatch, part in zip(microbatches, parts, strict=True)]
