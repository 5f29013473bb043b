"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications".

Continuous actions use a squashed Gaussian. For discrete ones expectations over all actions replace samples
(Christodoulou 2019). With images, a convolutional encoder is trained by the critics alone, on randomly shifted pictures
(Kostrikov et al. 2021, "Image Augmentation Is All You Need"). The critics are one batched ensemble. With an encoder
that remembers it learns from windows of rows: :mod:`reverie.agents.recurrent_replay`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.agents.recurrent_replay import SequenceConfig, check_targets, initial_carry, look, make_replay
from reverie.agents.soft_actor_critic import LOG_STD, Actor, Critics, NumpyNetworks, has_numpy_form
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read
from reverie.core.schedule import Rate, constant
from reverie.core.specs import ObservationSpec, Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update, WriteBack, random_array
from reverie.functional.steps import Steps
from reverie.nets.backend_module import place
from reverie.nets.images import random_shift
from reverie.nets.layers import Activation, Initialiser, Norm
from reverie.nets.numpy.distributions import NumpySquashedGaussian
from reverie.nets.numpy.mlp import quietly
from reverie.nets.optim import Adam, flatten
from reverie.nets.temperature import LearnedTemperature

Tensors = Mapping[str, Tensor]

DRQ_SHIFT = 4 / 84
"""Largest random shift of Kostrikov et al. 2021, as a share of the image's side."""


class SACConfig(ComponentConfig):
    """Soft actor-critic."""

    built_once = frozenset({"num_critics", "image_features", "initialiser"})

    kind: str = "sac"
    learning_rate: Rate = constant(3e-4)
    """Step size of the optimiser, for policy, critics and temperature."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    batch_size: int = Field(256, ge=1)
    """Transitions per update; windows of rows (see ``sequence``) if ``network`` remembers."""
    n_step: int = Field(1, ge=1)
    """Rewards summed before the value of the state reached is trusted; the entropy on the way is left out."""
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
    norm: Norm = "none"
    """Normalisation after each of them."""
    initialiser: Initialiser | None = None
    """Their initial weights: orthogonal, xavier, kaiming or torch's own, which they have if this is empty."""
    network: Annotated[ComponentConfig, Component("network")] | None = None
    """An encoder that policy and critics share, learnt by the critics; empty: one for images, none for vectors."""
    sequence: SequenceConfig = SequenceConfig()
    """What is replayed if ``network`` remembers."""
    image_features: int = Field(50, ge=1)
    """Features that the encoder makes of images, unless ``network`` says what it is."""
    image_shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Pixels by which images are shifted at random in updates; auto: 4 for each 84 that they are high or wide."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """The optimiser."""

    @model_validator(mode="after")
    def _has_targets(self) -> SACConfig:
        check_targets(self.sequence, self.network, self.n_step)
        return self


class Part(NamedTuple):
    """Steps that torch works on at a time: all of a batch, or some where memory is short."""

    start: Tensors
    reached: Tensors
    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor
    """In the mean over the whole batch."""
    share: Tensor
    """The same, and by importance."""
    reached_noise: Tensor
    noise: Tensor


class Judged(NamedTuple):
    """What the critics make of a part; ``surprise`` is how far they were off."""

    loss: Tensor
    value: Tensor
    features: Tensor
    surprise: Tensor


class SAC:
    """An agent for continuous and discrete actions."""

    Config = SACConfig
    traits = Traits(
        actions=("continuous", "discrete"), unbounded_actions=False, recurrent=True, priorities=True, microbatches=True
    )

    def __init__(self, config: SACConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.discrete = specs.action.kind == "discrete"
        self.replay = make_replay(config.network, config.sequence)
        with seeded(rng):
            self.critics = place(Critics(config, specs), backend)
            self.actor = place(Actor(config, specs, self.critics.encoder.width), backend)
            self.temperature = registry.load("temperature", config.temperature.kind)(config.temperature, specs)
        self.temperature.to(backend.device)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.targets_flat = flatten(list(self.targets.parameters()))
        optimizer = registry.load("optimizer", config.optimizer.kind)
        self.critic_optimizer = optimizer(config.optimizer, self.critics.parameters())
        learned = [*self.actor.parameters(), *self.temperature.parameters()]
        self.actor_optimizer = optimizer(config.optimizer, learned)
        is_plain = backend.engine == "numpy" and has_numpy_form(self.actor, self.critics)
        self.numpy = NumpyNetworks(self.actor, self.critics, self.targets) if is_plain else None

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": self.replay.read(self.config.batch_size, self.config.n_step)}

    def initial_carry(self, num_envs: int) -> Carry:
        return initial_carry(self.critics.encoder.network, num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        noise = None if mode is Mode.EVALUATE else self._noise(rng, len(now["is_first"]))
        if self.numpy is None:
            action, carry = self._choose(now, carry, noise)
        else:
            action = self.numpy.choose(now, noise)
        return action.reshape(-1, *self.specs.action.shape), carry, {}

    @torch.inference_mode()
    def _choose(self, now: Row, carry: Carry, noise: Array | None) -> tuple[Array, Carry]:
        """Actions (B, A), without noise the most likely ones, and the carry."""
        features, carry = look(self.critics.encoder.network, now, carry, self.backend)
        policy = self.actor(features)
        action = policy.mode() if noise is None else policy.sample(self._to_tensor(noise))
        return action.cpu().numpy(), carry

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One step of critics, policy and temperature on transitions (B, n + 1), or on windows (B, T)."""
        steps = self.replay.steps(batch, self.config.gamma, self.config.n_step)
        learn = self._learn if self.numpy is None else self._learn_by_numpy
        metrics, surprise = learn(steps, clock, rng)
        self.targets_flat.lerp_(self.critic_optimizer.flat.data, self.config.target_rate)
        if "importance" not in batch:
            return Update(metrics)
        priority = self.replay.priority(steps, surprise)
        return Update(metrics, write_back=WriteBack(batch["id"][:, 0], {"priority": priority}))

    def _learn(self, steps: Steps, clock: Clock, rng: np.random.Generator) -> tuple[dict[str, Any], Array]:
        """What there is to tell, and how far the critics were off at each step."""
        parts, learning_rate = self._cut(steps, rng), self.config.learning_rate.at(clock)
        judged: list[Judged] = []
        critic_norm = self.critic_optimizer.step(self._critic_losses(parts, judged), learning_rate)
        critic_losses, values, features, surprise = zip(*judged, strict=True)
        acted: list[tuple[Tensor, Tensor]] = []
        actor_norm = self.actor_optimizer.step(self._actor_losses(parts, features, acted), learning_rate)
        critic_loss, value, actor_loss, entropy = map(sum, (critic_losses, values, *zip(*acted, strict=True)))
        metrics = {
            "loss": critic_loss + actor_loss, "critic_loss": critic_loss, "actor_loss": actor_loss,
            "entropy": entropy, "temperature": self.temperature(), "value": value,
            "grad_norm_actor": actor_norm, "grad_norm_critic": critic_norm,
            **self.critic_optimizer.due_norms({"trunk": [self.critics.encoder]}, critic_norm),
        }  # fmt: skip
        return metrics, torch.cat(surprise).cpu().numpy()

    def _cut(self, steps: Steps, rng: np.random.Generator) -> list[Part]:
        """The batch in as many parts as the backend wants; what is drawn does not depend on their number."""
        shape, size = steps.weight.shape, len(steps.weight)
        start, reached = (self._augment(self.backend.to_tensors(side), rng) for side in (steps.start, steps.reached))
        noises = [self._to_tensor(self._noise(rng, steps.weight.size)).reshape(*shape, -1) for _ in range(2)]
        told = self.backend.to_tensors({name: getattr(steps, name) for name in Steps._fields[2:]})
        columns = [told.pop("action").reshape(*shape, -1), *told.values(), *noises]
        parts = []
        for begin in range(0, size, step := self.backend.microbatch_size(size)):
            rows = slice(begin, begin + step)
            sides = ({key: value[rows] for key, value in side.items()} for side in (start, reached))
            parts.append(Part(*sides, *(column[rows].flatten(0, len(shape) - 1) for column in columns)))
        return parts

    def _critic_losses(self, parts: Sequence[Part], told: list[Judged]) -> Iterator[Tensor]:
        """The critics' loss part by part; what is to be told of each is added to ``told``."""
        for part in parts:
            target = self._target(part)
            features = self.critics.encoder(part.start)
            values = self.critics(features) if self.discrete else self.critics(features, part.action)
            if self.discrete:
                values = values.gather(-1, part.action.expand(self.config.num_critics, -1, -1)).squeeze(-1)
            errors = values - target
            loss = 0.5 * torch.dot(errors.square().sum(0), part.share)
            value = torch.dot(values.detach().mean(0), part.weight)
            told.append(Judged(loss.detach(), value, features.detach(), errors.detach().abs().mean(0)))
            yield loss

    def _actor_losses(self, parts: Sequence[Part], features: Sequence[Tensor], told: list[Any]) -> Iterator[Tensor]:
        """The loss of policy and temperature part by part; the policy's loss and entropy are added to ``told``."""
        for part, seen in zip(parts, features, strict=True):
            losses, entropy = self._policy_losses(seen, part.noise)
            loss = torch.dot(losses, part.weight)
            told.append((loss.detach(), torch.dot(entropy.detach(), part.weight)))
            yield loss + torch.dot(self.temperature.loss(entropy), part.weight)

    @quietly
    def _learn_by_numpy(self, steps: Steps, clock: Clock, rng: np.random.Generator) -> tuple[dict[str, Any], Array]:
        """The same for vectors and continuous actions, with the gradients written out."""
        networks, learning_rate = self.numpy, self.config.learning_rate.at(clock)
        assert networks is not None
        weight, size, temperature = steps.weight, len(steps.weight), float(self.temperature())
        noise = np.concatenate([self._noise(rng, size), self._noise(rng, size)])
        following, current = networks.inputs(steps.reached), networks.inputs(steps.start)
        outputs = networks.actor.forward(np.concatenate([following, current]))
        reached = NumpySquashedGaussian(outputs[-1][:size], noise[:size], LOG_STD)
        value = networks.target_values(following, reached.action).min(0) - temperature * reached.log_prob
        target = steps.reward + steps.discount * value

        kept = networks.critics.forward(np.concatenate([current, steps.action.reshape(size, -1)], axis=1))
        values = kept[-1][..., 0]
        errors = values - target
        networks.critics.backward((errors * steps.share)[..., None], kept)
        critic_norm = self.critic_optimizer.apply(learning_rate)

        policy = NumpySquashedGaussian(outputs[-1][size:], noise[size:], LOG_STD)
        least, slope = networks.least_value(current, policy.action, -weight)
        networks.actor.backward(policy.backward(slope, temperature * weight), [kept[size:] for kept in outputs])
        entropy = -float(policy.log_prob @ weight)
        self.temperature.set_gradient(entropy)
        actor_norm = self.actor_optimizer.apply(learning_rate)
        critic_loss = 0.5 * float(np.square(errors).sum(0) @ steps.share)
        actor_loss = -temperature * entropy - float(least @ weight)
        metrics = {
            "loss": critic_loss + actor_loss, "critic_loss": critic_loss, "actor_loss": actor_loss,
            "entropy": entropy, "temperature": float(self.temperature()), "value": float(values.mean(0) @ weight),
            "grad_norm_actor": actor_norm, "grad_norm_critic": critic_norm,
        }  # fmt: skip
        return metrics, np.abs(errors).mean(0)

    @torch.no_grad()
    def _target(self, part: Part) -> Tensor:
        """Rewards plus the soft value of the state reached; nothing follows a terminal one."""
        policy = self.actor(self.critics.encoder(part.reached))
        features, temperature = self.targets.encoder(part.reached), self.temperature()
        if self.discrete:
            probability = policy.log_probs.exp()
            least = self.targets(features).amin(0)
            value = (probability * (least - temperature * policy.log_probs)).sum(-1)
        else:
            action, log_prob = policy.sample_with_log_prob(part.reached_noise)
            value = self.targets(features, action).amin(0) - temperature * log_prob
        return part.reward + part.discount * value

    def _policy_losses(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's loss and its entropy, per sample. Only the policy's own parameters are asked for gradients."""
        policy, temperature = self.actor(features), self.temperature()
        if self.discrete:
            least = self.critics(features).amin(0).detach()
            probability, entropy = policy.log_probs.exp(), policy.entropy()
            losses = (probability * (temperature * policy.log_probs - least)).sum(-1)
        else:
            action, log_prob = policy.sample_with_log_prob(noise)
            losses = temperature * log_prob - self.critics(features, action).amin(0)
            entropy = -log_prob
        return losses, entropy

    def _augment(self, observation: Tensors, rng: np.random.Generator) -> Tensors:
        """Images at random shifts, everything else as it is."""
        shifts = {key: self._shift(spec) for key, spec in self.specs.observations.items() if spec.kind == "image"}
        return {key: random_shift(x, shifts[key], rng) if shifts.get(key) else x for key, x in observation.items()}

    def _shift(self, image: ObservationSpec) -> int:
        """Pixels by which an image is shifted, by the smaller of its sides."""
        shift = self.config.image_shift
        return round(DRQ_SHIFT * min(image.shape[:2])) if shift == "auto" else shift

    def _noise(self, rng: np.random.Generator, count: int) -> Array:
        size = self.specs.action.size
        return rng.random((count, size), dtype=np.float32) if self.discrete else random_array(rng, count, size)

    def _to_tensor(self, noise: Array) -> Tensor:
        return self.backend.to_tensor(noise)

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """Losses on data that were kept from training."""
        steps = self.replay.steps(batch, self.config.gamma, self.config.n_step)
        parts, judged, acted = self._cut(steps, rng), list[Any](), list[Any]()
        list(self._critic_losses(parts, judged))
        critic_losses, values, features, _ = zip(*judged, strict=True)
        list(self._actor_losses(parts, features, acted))
        actor_losses, entropies = zip(*acted, strict=True)
        told = {"critic_loss": critic_losses, "actor_loss": actor_losses, "entropy": entropies, "value": values}
        return {name: float(sum(parts)) for name, parts in told.items()}

    # ---------------------------------------------------------------- memory

    def _modules(self) -> dict[str, nn.Module]:
        return {"critics": self.critics, "actor": self.actor, "temperature": self.temperature}

    def policy_state(self) -> State:
        return {"actor": module_state(self.actor), "encoder": module_state(self.critics.encoder)}

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.actor, state["actor"])
        for critics in (self.critics, self.targets):  # targets are critics of a moment ago, and see as they do
            load_module_state(critics.encoder, state["encoder"])

    def state(self) -> State:
        modules = {name: module_state(module) for name, module in self._modules().items()}
        return {
            **modules,
            "targets": module_state(self.targets),
            "critic_optimizer": self.critic_optimizer.state(),
            "actor_optimizer": self.actor_optimizer.state(),
        }

    def load_state(self, state: State) -> None:
        for name, module in {**self._modules(), "targets": self.targets}.items():
            load_module_state(module, state[name])
        self.critic_optimizer.load_state(state["critic_optimizer"])
        self.actor_optimizer.load_state(state["actor_optimizer"])
