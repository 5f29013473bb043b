"""Deep Q-learning: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

The parts of Rainbow (Hessel et al. 2018) are switches and components: ``double``, ``dueling``, ``noisy``, ``n_step``,
the head's kind (scalar, categorical, quantile), and priorities in the buffer, which this file only reports errors to.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from reverie import backend
from reverie.controllers.exploration import epsilon_greedy
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
    WriteBack,
    is_last,
    observation_keys,
)  # fmt: skip
from reverie.data.rows import transitions
from reverie.functional.losses import weighted_mean
from reverie.functional.returns import n_step
from reverie.nets.encoders import AutoNetwork
from reverie.nets.networks import make_network
from reverie.nets.numpy_policy import make_numpy_network
from reverie.nets.optim import Adam, flatten
from reverie.nets.q_heads import NoisyLinear, ScalarHead


class DQNConfig(ComponentConfig):
    """Deep Q-learning."""

    built_once = frozenset({"dueling", "noisy"})

    kind: str = "dqn"
    learning_rate: Rate = constant(1e-4)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    batch_size: int = Field(32, ge=1)
    """Transitions per update."""
    n_step: int = Field(1, ge=1)
    """Rewards summed before the value of the state reached is trusted."""
    double: bool = True
    """Choose the next action by the online network, value it by the target one."""
    dueling: bool = False
    """Split values into that of the state and the advantage of each action."""
    noisy: bool = False
    """Explore by learned noise in the last layers; set epsilon to 0 with it."""
    head: Annotated[ComponentConfig, Component("q_head")] = ScalarHead.Config()
    """What is learnt per action: scalar, categorical or quantile."""
    epsilon: Rate = constant(0.05)
    """Share of random actions in collection."""
    target_every: int = Field(1, ge=1)
    """Updates between two moves of the target network."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """How far each move goes: 1 copies the online network."""
    max_grad_norm: float | None = Field(10.0, gt=0)
    """Gradients longer than this are shortened to it."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The trunk."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """The optimiser."""


class QNetwork(nn.Module):
    """A trunk and a head."""

    def __init__(self, config: DQNConfig, specs: Specs) -> None:
        super().__init__()
        self.trunk = make_network(config.network, specs.observations)
        head = registry.load("q_head", config.head.kind)
        self.head = head(config.head, self.trunk.features, specs.action.size, config.dueling, config.noisy)
        self.noisy_layers = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:  # (B, A, K)
        return self.head(self.trunk(observation))

    def draw_noise(self, rng: np.random.Generator | None) -> None:
        for layer in self.noisy_layers:
            layer.draw(rng)


class DQN:
    """An agent for discrete actions."""

    Config = DQNConfig
    hooks = ("update",)
    uses_priorities = True

    def __init__(self, config: DQNConfig, specs: Specs, rng: np.random.Generator) -> None:
        if specs.action.kind != "discrete":
            raise ConfigError(f"DQN needs discrete actions; this env has {specs.action.kind} ones.", "Try ppo or sac.")
        self.config = config
        self.specs = specs
        with backend.seeded(rng):
            self.online = QNetwork(config, specs).to(backend.device())
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.target_flat = flatten(list(self.target.parameters()))
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.online.parameters())
        plain = isinstance(self.online.head, ScalarHead) and not config.dueling
        self.numpy_values = make_numpy_network(self.online.trunk, self.online.head.advantage) if plain else None

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": Transitions(self.config.batch_size, self.config.n_step)}

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        explores = mode is Mode.COLLECT
        values = self.numpy_values(now) if self.numpy_values else self._values(now, rng if explores else None)
        action = epsilon_greedy(values, self.config.epsilon.at(clock), rng) if explores else values.argmax(-1)
        return action, carry, {}

    @torch.inference_mode()
    def _values(self, now: Row, rng: np.random.Generator | None) -> Array:
        """Values (N, A) of arriving rows, with new noise where layers are noisy and ``rng`` is given."""
        self.online.draw_noise(rng)
        observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
        values: Array = self.online.head.values(self.online(observation)).cpu().numpy()
        return values

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One step on transitions (B, n + 1)."""
        rows = backend.to_tensors(batch)
        self.online.draw_noise(rng)
        self.target.draw_noise(rng)
        now, then, weight = transitions(rows)
        steps = n_step(
            then["reward"], then["terminated"], is_last(then), weight, self.config.gamma, self.config.n_step
        )  # fmt: skip
        sample = torch.arange(len(weight), device=weight.device)
        reached = {key: rows[key][sample, steps.column[:, 0] + 1] for key in observation_keys(rows)}
        start = {key: now[key][:, 0] for key in observation_keys(now)}
        chosen = _pick(self.online(start), now["action"][:, 0])
        with torch.no_grad():
            following = self._following(reached)
        losses = self.online.head.loss(chosen, following, steps.reward[:, 0], steps.discount[:, 0])
        importance = rows["importance"][:, 0] if "importance" in rows else torch.ones_like(losses)
        loss = weighted_mean(losses * importance, weight[:, 0])
        norm = self.optimizer.step(loss, self.config.learning_rate.at(clock), self.config.max_grad_norm)
        self._move_target(clock)
        with torch.no_grad():
            value = weighted_mean(self.online.head.values(chosen.unsqueeze(1)).squeeze(1), weight[:, 0])
        metrics = {"loss": loss.detach(), "value": value, "grad_norm": norm, "epsilon": self.config.epsilon.at(clock)}
        return Update(metrics, 1, self._priorities(batch, losses))

    def _following(self, observation: Mapping[str, Tensor]) -> Tensor:
        """The target network's output for the action that would be taken next (B, K)."""
        output = self.target(observation)
        judge = self.online(observation) if self.config.double else output
        return _pick(output, self.online.head.values(judge).argmax(-1))

    def _move_target(self, clock: Clock) -> None:
        if (clock.updates + 1) % self.config.target_every == 0:
            self.target_flat.lerp_(self.optimizer.flat.data, self.config.target_rate)

    def _priorities(self, batch: Batch, losses: Tensor) -> WriteBack | None:
        """How surprising each transition was, for buffers that sample by it."""
        if "importance" not in batch:
            return None
        return WriteBack(batch["id"][:, 0], {"priority": self.online.head.surprise(losses.detach()).cpu().numpy()})

    def policy_state(self) -> State:
        return backend.module_state(self.online)

    def load_policy_state(self, state: State) -> None:
        backend.load_module_state(self.online, state)
        self.target_flat.copy_(self.optimizer.flat.data)

    def state(self) -> State:
        return {
            "online": self.policy_state(),
            "target": backend.module_state(self.target),
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: State) -> None:
        self.load_policy_state(state["online"])
        backend.load_module_state(self.target, state["target"])
        self.optimizer.load_state(state["optimizer"])


def _pick(output: Tensor, action: Tensor) -> Tensor:
    """The outputs (B, K) of the actions taken. Indexing would do it too, but its gradient is slow when exact."""
    return output.gather(1, action[:, None, None].expand(-1, 1, output.shape[-1])).squeeze(1)
