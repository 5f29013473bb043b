"""Proximal policy optimisation: Schulman et al. 2017, "Proximal Policy Optimization Algorithms".

Departures from common implementations:

* Acting computes nothing but the action. Log-probabilities and values of the whole rollout are worked out in one
  pass when the update starts; the weights have not changed since, so they are the same numbers, and cheaper.
* The last row of an episode carries weight 0: its action was never carried out. Its value is what a truncated
  episode bootstraps from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from reverie import backend
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.reads import Read, Rollout
from reverie.core.schedule import Schedule, Scheduled
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update, is_last, observation_keys
from reverie.data.rows import transitions
from reverie.functional import losses
from reverie.functional.returns import gae
from reverie.nets.distributions import Distribution
from reverie.nets.encoders import AutoNetwork
from reverie.nets.heads import TRUNK_GAIN, StateDependentHead, make_action_head, scale_weights
from reverie.nets.layers import orthogonal_init
from reverie.nets.optim import Adam


def constant(value: float) -> Schedule:
    return Schedule(start=value, end=value)


class PPOConfig(ComponentConfig):
    """Proximal policy optimisation."""

    kind: str = "ppo"
    learning_rate: Scheduled = constant(3e-4)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Mix of advantage estimates: 0 trusts the value function, 1 the returns."""
    clip: Scheduled = constant(0.2)
    """How far the probability ratio may move before its gradient is cut."""
    value_clip: float | None = Field(None, gt=0)
    """Cut value predictions to this distance from their old ones; empty does not."""
    epochs: int = Field(10, ge=1)
    """Passes over each rollout."""
    batch_size: int | float = Field(64, gt=0)
    """Rows per minibatch; a float up to 1.0 is a fraction of the rollout."""
    normalise_advantage: bool = True
    """Bring advantages to mean 0 and deviation 1 in each minibatch."""
    entropy_weight: float = Field(0.0, ge=0)
    """Reward for randomness of the policy."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the value loss."""
    max_grad_norm: float | None = Field(0.5, gt=0)
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = Field(None, gt=0)
    """Stop the epochs of a rollout once the policy has moved 1.5 times this far."""
    shared_trunk: bool = False
    """Whether policy and value share the network up to their last layers."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The trunk."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config()
    """The optimiser."""
    orthogonal_init: bool = True
    """Orthogonal initial weights; otherwise torch's defaults."""
    initial_log_std: float = 0.0
    """Logarithm of the initial deviation of continuous actions."""
    state_dependent_noise: bool = False
    """Smooth exploration (gSDE) for continuous actions."""
    noise_steps: int = Field(-1, ge=-1)
    """Steps for which that noise keeps its direction; -1 for a whole rollout."""


class ActorCritic(nn.Module):
    """A policy and a value function over one or two trunks."""

    def __init__(self, config: PPOConfig, specs: Specs) -> None:
        super().__init__()
        network = registry.load("network", config.network.kind)
        self.actor_trunk = network(config.network, specs.observations)
        shared = config.shared_trunk
        self.critic_trunk = self.actor_trunk if shared else network(config.network, specs.observations)
        features = self.actor_trunk.features
        self.action_head = make_action_head(
            features, specs.action, config.state_dependent_noise, config.initial_log_std
        )
        self.value_head = nn.Linear(features, 1)
        if config.orthogonal_init:
            for trunk in (self.actor_trunk, self.critic_trunk):
                orthogonal_init(trunk, TRUNK_GAIN)
            scale_weights(self.action_head.output, 0.01)
            scale_weights(self.value_head, 1.0)

    def policy(self, observation: Mapping[str, Tensor]) -> Distribution:
        return self.action_head(self.actor_trunk(observation))

    def value(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.value_head(self.critic_trunk(observation)).squeeze(-1)

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        features = self.actor_trunk(observation)
        others = features if self.critic_trunk is self.actor_trunk else self.critic_trunk(observation)
        return self.action_head(features), self.value_head(others).squeeze(-1)


class PPO:
    """An agent for every observation and action kind of :mod:`reverie.core.specs`."""

    Config = PPOConfig
    hooks = ("update",)

    def __init__(self, config: PPOConfig, specs: Specs, rng: np.random.Generator) -> None:
        self.config = config
        self.specs = specs
        self.reads: dict[str, Read] = {"update": Rollout()}
        with backend.seeded(rng):
            self.model = ActorCritic(config, specs).to(backend.device())
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.model.parameters())

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        head = self.model.action_head
        if not isinstance(head, StateDependentHead):
            return {}
        maps = np.zeros((num_envs, *head.log_std.shape), np.float32)
        return {"maps": maps, "age": np.array(0), "updates": np.array(-1)}

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
        head = self.model.action_head
        if mode is Mode.EVALUATE:
            action = self.model.policy(observation).mode()
        elif isinstance(head, StateDependentHead):
            carry = self._refresh_noise(carry, clock, rng)
            maps = torch.as_tensor(carry["maps"], device=backend.device())
            action = head.explore(self.model.actor_trunk(observation), maps)
        else:
            noise = head.draw_noise(rng, len(now["is_first"]))
            action = self.model.policy(observation).sample(torch.as_tensor(noise, device=backend.device()))
        return action.cpu().numpy(), carry, {}

    def _refresh_noise(self, carry: Carry, clock: Clock, rng: np.random.Generator) -> Carry:
        """New exploration maps for every rollout, and after ``noise_steps`` within it."""
        age = int(carry["age"])
        stale = 0 < self.config.noise_steps <= age
        if stale or int(carry["updates"]) != clock.updates:
            maps = self.model.action_head.draw_map(rng, len(carry["maps"]))
            return {"maps": maps, "age": np.array(1), "updates": np.array(clock.updates)}
        return {**carry, "age": np.array(age + 1)}

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """All epochs over one rollout (N, T + 1)."""
        data = self._prepare(backend.to_tensors(batch))
        totals: dict[str, Tensor] = {}
        count = 0
        for _ in range(self.config.epochs):
            kl = torch.zeros((), device=backend.device())
            batches = 0
            for minibatch in self._minibatches(data, rng):
                metrics = self._step(minibatch, clock)
                kl += metrics["kl"]
                totals = {key: totals.get(key, 0) + value for key, value in metrics.items()}
                batches += 1
            count += batches
            if self.config.target_kl is not None and float(kl) / batches > 1.5 * self.config.target_kl:
                break
        means = {key: value / count for key, value in totals.items()}
        return Update({**means, **self._summary(data, clock)}, count)

    @torch.no_grad()
    def _prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows (N * T) with what the losses need: old log-probability, old value, advantage, target, weight."""
        now, then, weight = transitions(batch)
        flat = {key: batch[key].flatten(0, 1) for key in observation_keys(batch)}
        values = self.model.value(flat).unflatten(0, batch["reward"].shape)  # (N, T + 1)
        advantage = gae(
            then["reward"], values[:, :-1], values[:, 1:], then["terminated"], is_last(then), weight,
            self.config.gamma, self.config.gae_lambda,
        )  # fmt: skip
        rows = {key: now[key].flatten(0, 1) for key in (*observation_keys(now), "action")}
        rows["log_prob"] = self.model.policy(rows).log_prob(rows["action"])
        rows["value"] = values[:, :-1].flatten()
        rows["advantage"] = advantage.flatten()
        rows["target"] = rows["advantage"] + rows["value"]
        rows["weight"] = weight.flatten()
        return rows

    def _minibatches(self, data: dict[str, Tensor], rng: np.random.Generator) -> Iterator[dict[str, Tensor]]:
        rows = len(data["weight"])
        size = self.config.batch_size
        size = max(1, round(size * rows)) if isinstance(size, float) else min(size, rows)
        order = torch.as_tensor(rng.permutation(rows), device=backend.device())
        shuffled = {key: value[order] for key, value in data.items()}  # one gather, then free slices
        for start in range(0, rows, size):
            yield {key: value[start : start + size] for key, value in shuffled.items()}

    def _step(self, rows: dict[str, Tensor], clock: Clock) -> dict[str, Tensor]:
        """One gradient step on one minibatch."""
        config = self.config
        weight, advantage = rows["weight"], rows["advantage"]
        clip = config.clip.at(clock)
        if config.normalise_advantage:
            mean = losses.weighted_mean(advantage, weight)
            advantage = (advantage - mean) / (losses.weighted_std(advantage, weight) + 1e-8)
        policy, value = self.model(rows)
        log_ratio = policy.log_prob(rows["action"]) - rows["log_prob"]
        policy_loss = losses.clipped_policy_loss(log_ratio, advantage, clip, weight)
        value_loss = losses.clipped_value_loss(value, rows["value"], rows["target"], config.value_clip, weight)
        loss = policy_loss + config.value_weight * value_loss
        entropy = losses.weighted_mean(policy.entropy(), weight)
        if config.entropy_weight:
            loss = loss - config.entropy_weight * entropy
        norm = self.optimizer.step(loss, config.learning_rate.at(clock), config.max_grad_norm)
        with torch.no_grad():
            return {
                "loss": loss.detach(),
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "kl": losses.approximate_kl(log_ratio, weight),
                "clip_fraction": losses.clip_fraction(log_ratio, clip, weight),
                "grad_norm": norm,
            }

    def _summary(self, data: dict[str, Tensor], clock: Clock) -> dict[str, Any]:
        return {
            "explained_variance": losses.explained_variance(data["value"], data["target"], data["weight"]),
            "learning_rate": self.config.learning_rate.at(clock),
        }

    # ---------------------------------------------------------------- memory

    def policy_state(self) -> State:
        return backend.module_state(self.model)

    def load_policy_state(self, state: State) -> None:
        backend.load_module_state(self.model, state)

    def state(self) -> State:
        return {"model": self.policy_state(), "optimizer": self.optimizer.state()}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state["model"])
        self.optimizer.load_state(state["optimizer"])
