"""Deep Q-learning: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

The parts of Rainbow (Hessel et al. 2018) are switches and components: ``double``, ``dueling``, ``noisy``, ``n_step``,
the kind of head (scalar, categorical, quantile), and prioritised sampling in the buffer. A recurrent network learns
from sequences: :mod:`reverie.agents.recurrent_replay`. Small networks run in numpy:
:mod:`reverie.agents.numpy_q_network`.
"""

from __future__ import annotations

import copy
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.agents.action_network import GreedyAction
from reverie.agents.dqn_engine import DQNEngine
from reverie.agents.exploration import epsilon_greedy
from reverie.agents.inspection import inspect_rows
from reverie.agents.numpy_q_network import NumpyQNetworks, has_numpy_form
from reverie.agents.q_network import QNetwork
from reverie.agents.recurrent_replay import (
    SequenceConfig,
    check_targets,
    encode,
    initial_carry,
    make_replay,
    to_tensors,
)  # fmt: skip
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read
from reverie.core.schedule import Fraction, Rate, constant
from reverie.core.specs import Specs
from reverie.core.traits import MirroredInNumpy
from reverie.core.types import Array, Batch, Carry, Clock, Inspection, Mode, Row, State, Update
from reverie.functional.transition_batch import TransitionBatch, split
from reverie.nets.backend_module import to_backend
from reverie.nets.encoders import AutoNetwork
from reverie.nets.optim import Adam, FlatOptimizer, Loss, Result, evaluate, flatten
from reverie.nets.q_heads import ScalarHead


class DQNConfig(ComponentConfig):
    """Deep Q-learning."""

    built_once = frozenset({"dueling", "noisy"})

    kind: str = "dqn"
    learning_rate: Rate = constant(1e-4)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    batch_size: int = Field(32, ge=1)
    """Transitions per update. Sequences (see ``sequence``) if the network is recurrent."""
    n_step: int = Field(1, ge=1)
    """Rewards that are summed before the target bootstraps."""
    double: bool = True
    """Let the online network choose the next action, and the target network value it."""
    dueling: bool = False
    """Split values into that of the state and the advantage of each action."""
    noisy: bool = False
    """Explore by learned noise in the layers of the head. Set epsilon to 0 with it."""
    head: Annotated[ComponentConfig, Component("q_head")] = ScalarHead.Config()
    """What is learned per action: scalar, categorical or quantile."""
    epsilon: Fraction = constant(0.05)
    """Fraction of random actions in collection."""
    target_every: int = Field(1, ge=1)
    """Updates between two steps of the target network."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """Step of the target network towards the online one. 1 copies it."""
    max_grad_norm: float | None = Field(10.0, gt=0)
    """Longer gradients are scaled down to this norm. Empty: no limit."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """Network from observations to features, which the head reads."""
    sequence: SequenceConfig = SequenceConfig()
    """What is replayed if the network is recurrent."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """Update rule of the Q-network."""

    @model_validator(mode="after")
    def _has_targets(self) -> DQNConfig:
        check_targets(self.sequence, self.network, self.n_step)
        return self


class DQN(MirroredInNumpy, in_numpy=("q_values", "gradient_step", "loss", "next_q", "make_microbatches")):
    """For all observations, and for discrete actions."""

    Config = DQNConfig
    traits = Traits(
        actions=("discrete",), recurrent=True, priorities=True, microbatches=True, numpy_engine=True, observes=True
    )

    def __init__(self, config: DQNConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.replay = make_replay(config.network, config.sequence)
        with seeded(rng):
            self.online = to_backend(QNetwork(config, specs), backend)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.target_flat = flatten(list(self.target.parameters()))
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.optimizer = optimizer(config.optimizer, self.online.parameters())
        self.numpy_engine: NumpyQNetworks | None = None
        if backend.engine == "numpy" and self.traits.numpy_engine and has_numpy_form(self.online):
            self.numpy_engine = NumpyQNetworks(self.online, self.target, self.optimizer, backend)

    @property
    def engine(self) -> DQNEngine:
        """What computes values and gradient steps. The torch form is this class."""
        return self.numpy_engine or self

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": self.replay.read(self.config.batch_size, self.config.n_step)}

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return initial_carry(self.online.trunk, num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        explores = mode is not Mode.EVALUATE
        if mode is Mode.OBSERVE and not carry:  # actions are ignored; the noise keeps the stream aligned
            self.online.sample_noise(rng)
            actions = self.specs.action.zeros(len(now["is_first"]))
        else:
            q_values, carry = self.engine.q_values(now, carry, rng if explores else None)
            actions = q_values.argmax(-1)
        if explores:
            actions = epsilon_greedy(actions, self.specs.action.size, self.config.epsilon.at(clock), rng)
        return actions, carry, {}

    @torch.inference_mode()
    def q_values(self, now: Row, carry: Carry, rng: np.random.Generator | None) -> tuple[Array, Carry]:
        self.online.sample_noise(rng)
        features, carry = encode(self.online.trunk, now, carry, self.backend)
        return self.online.head.values(self.online.head(features)).cpu().numpy(), carry

    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        def inspect_row(now: Row, carry: Carry) -> tuple[Row, Array, Carry]:
            q_values, carry = self.engine.q_values(now, carry, None)
            epsilon, best = self.config.epsilon.at(clock), q_values.argmax(-1)
            probs = epsilon / q_values.shape[-1] + (1 - epsilon) * np.eye(q_values.shape[-1])[best]
            return {"mode": best, "probs": probs, "q_values": q_values}, q_values.max(-1), carry

        return inspect_rows(inspect_row, rows, self.initial_carry(len(rows["is_first"])))

    def action_network(self) -> nn.Module | None:
        self.online.sample_noise(None)
        return None if self.initial_carry(1) else GreedyAction(self.online)

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step on transitions (B, n + 1) or sequences (B, T)."""
        config = self.config
        transitions = self.replay.transitions(batch, config.gamma, config.n_step)
        metrics, aux, grad_norm = self.engine.gradient_step(transitions, config, config.learning_rate.at(clock), rng)
        if (clock.updates + 1) % config.target_every == 0:
            # Both vectors hold parameters in the same order: target is a copy of online.
            self.target_flat.lerp_(self.optimizer.flat.data, config.target_rate)
        metrics |= {"grad_norm": grad_norm, "epsilon": config.epsilon.at(clock)}
        modules = {"trunk": [self.online.trunk], "head": [self.online.head]}
        metrics |= self.optimizer.grad_norms_if_due(modules, grad_norm)
        if "importance" not in batch:
            return Update(metrics)
        td_errors = self.online.head.td_errors(aux["losses"])
        return Update(metrics, write_back=self.replay.write_priorities(batch, transitions, td_errors))

    def gradient_step(
        self, transitions: TransitionBatch, config: DQNConfig, learning_rate: float, rng: np.random.Generator
    ) -> Result:
        self.online.sample_noise(rng)
        self.target.sample_noise(rng)
        microbatches = self.make_microbatches(transitions)
        return self.optimizer.minimise(self.loss, microbatches, learning_rate, config.max_grad_norm)

    def loss(self, batch: TransitionBatch) -> Loss:
        """The head's loss between the outputs (N, K) of the actions taken and their targets."""
        q_taken = take_actions(self.online(batch.obs), batch.actions)
        with torch.no_grad():
            next_q = self.next_q(batch)
        losses = self.online.head.loss(q_taken, next_q, batch.rewards, batch.discounts)
        loss = torch.dot(losses, batch.importance_weights)
        with torch.no_grad():
            values = self.online.head.values(q_taken.unsqueeze(1)).squeeze(1)
        return Loss(loss, {"loss": loss, "value": torch.dot(values, batch.weights)}, {"losses": losses})

    def next_q(self, batch: TransitionBatch) -> Tensor:
        """The target network's outputs (N, K) for the next actions: van Hasselt et al. 2016, Eq. 3, or 4 if double."""
        outputs = self.target(batch.next_obs)
        selector = self.online(batch.next_obs) if self.config.double else outputs
        return take_actions(outputs, self.online.head.values(selector).argmax(-1, keepdim=True))

    def make_microbatches(self, transitions: TransitionBatch) -> list[TransitionBatch]:
        return split(to_tensors(transitions, self.backend), self.backend.microbatch_size(len(transitions.weights)))

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The loss on held-out data, without noise in the layers."""
        self.online.sample_noise(None)
        self.target.sample_noise(None)
        transitions = self.replay.transitions(batch, self.config.gamma, self.config.n_step)
        outputs = evaluate(self.loss, self.make_microbatches(transitions))
        return {name: float(value) for name, value in outputs.metrics.items()}

    # ---------------------------------------------------------------- state

    def policy_state(self) -> State:
        return module_state(self.online)

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.online, state)
        self.target_flat.copy_(self.optimizer.flat.data)

    def state(self) -> State:
        return {
            "online": self.policy_state(),
            "target": module_state(self.target),
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: State) -> None:
        self.load_policy_state(state["online"])
        load_module_state(self.target, state["target"])
        self.optimizer.load_state(state["optimizer"])


def take_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """The outputs (N, K) of actions (N, 1) out of (N, A, K). Deterministic indexing has a slower gradient."""
    return outputs.gather(1, actions[:, :, None].expand(-1, 1, outputs.shape[-1])).squeeze(1)
