"""Deep Q-learning: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

The parts of Rainbow (Hessel et al. 2018) are switches and components: ``double``, ``dueling``, ``noisy``, ``n_step``,
the head's kind (scalar, categorical, quantile), and priorities in the buffer, which this file only reports errors to.
With a network that remembers it learns from windows of rows: :mod:`reverie.agents.recurrent_replay`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.agents.exploration import epsilon_greedy
from reverie.agents.recurrent_replay import (
    SequenceConfig,
    check_targets,
    initial_carry,
    look,
    make_replay,
    make_trunk,
)  # fmt: skip
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read
from reverie.core.schedule import Rate, Share, constant
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update, WriteBack
from reverie.functional.gradients import huber_gradient
from reverie.functional.steps import Steps
from reverie.nets.backend_module import place
from reverie.nets.encoders import AutoNetwork
from reverie.nets.numpy.mlp import Kept, NumpyInput, NumpyLayer, NumpyMLP, is_plain_mlp, make_numpy_layers, quietly
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
    """Transitions per update; windows of rows (see ``sequence``) if the network remembers."""
    n_step: int = Field(1, ge=1)
    """Rewards summed before the value of the state reached is trusted."""
    double: bool = True
    """Choose the next action by the online network, value it by the target one."""
    dueling: bool = False
    """Split values into that of the state and the advantage of each action."""
    noisy: bool = False
    """Explore by learned noise in the layers of the head; set epsilon to 0 with it."""
    head: Annotated[ComponentConfig, Component("q_head")] = ScalarHead.Config()
    """What is learnt per action: scalar, categorical or quantile."""
    epsilon: Share = constant(0.05)
    """Share of random actions in collection."""
    target_every: int = Field(1, ge=1)
    """Updates between two moves of the target network."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """How far each move goes: 1 copies the online network."""
    max_grad_norm: float | None = Field(10.0, gt=0)
    """Gradients longer than this are shortened to it."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The trunk."""
    sequence: SequenceConfig = SequenceConfig()
    """What is replayed if the network remembers."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """The optimiser."""

    @model_validator(mode="after")
    def _has_targets(self) -> DQNConfig:
        check_targets(self.sequence, self.network, self.n_step)
        return self


class QNetwork(nn.Module):
    """A trunk and a head."""

    def __init__(self, config: DQNConfig, specs: Specs) -> None:
        super().__init__()
        self.trunk = make_trunk(config.network, specs.observations, config.sequence)
        head = registry.load("q_head", config.head.kind)
        self.head = head(config.head, self.trunk.features, specs.action.size, config.dueling, config.noisy)
        self.noisy_layers = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:  # (B, A, K)
        return self.head(self.trunk(observation))

    def draw_noise(self, rng: np.random.Generator | None) -> None:
        for layer in self.noisy_layers:
            layer.draw(rng)


class NumpyQNetworks:
    """The online and the target network in numpy, for one value per action and plain fully connected layers."""

    def __init__(self, online: QNetwork, target: QNetwork) -> None:
        self.inputs = NumpyInput(online.trunk.inputs)
        self.online, self.target = (
            NumpyMLP([*make_numpy_layers(network.trunk.layers), NumpyLayer(network.head.advantage)])
            for network in (online, target)
        )

    def values(self, observation: Mapping[str, Array]) -> Array:
        return self.online(self.inputs(observation))

    def following(self, observation: Mapping[str, Array], double: bool) -> Array:
        """The target network's value of the action that would be taken next (B,)."""
        x = self.inputs(observation)
        values = self.target(x)
        if not double:
            return np.maximum.reduce(values, 1)
        return values[np.arange(len(x)), self.online(x).argmax(1)]

    def forward(self, observation: Mapping[str, Array]) -> Kept:
        return self.online.forward(self.inputs(observation))

    def backward(self, taken: Array, gradient: Array, kept: Kept) -> None:
        """Set the online network's gradients from the derivative by the values of the actions ``taken`` (B,)."""
        by_value = np.zeros_like(kept[-1])
        by_value[np.arange(len(taken)), taken] = gradient
        self.online.backward(by_value, kept)


def has_numpy_form(network: QNetwork) -> bool:
    head = network.head
    is_simple = isinstance(head, ScalarHead) and head.value is None and isinstance(head.advantage, nn.Linear)
    return is_simple and is_plain_mlp(network.trunk)


class Learnt(NamedTuple):
    """What a gradient step has to tell; ``losses`` are per sample."""

    loss: Any
    value: Any
    grad_norm: Any
    losses: Tensor


class DQN:
    """An agent for discrete actions."""

    Config = DQNConfig
    traits = Traits(actions=("discrete",), recurrent=True, priorities=True, microbatches=True)

    def __init__(self, config: DQNConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.replay = make_replay(config.network, config.sequence)
        with seeded(rng):
            self.online = place(QNetwork(config, specs), backend)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.target_flat = flatten(list(self.target.parameters()))
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.online.parameters())
        is_numpy = backend.engine == "numpy" and has_numpy_form(self.online)
        self.numpy = NumpyQNetworks(self.online, self.target) if is_numpy else None

    @property
    def reads(self) -> dict[str, Read]:
        return {"update": self.replay.read(self.config.batch_size, self.config.n_step)}

    def initial_carry(self, num_envs: int) -> Carry:
        return initial_carry(self.online.trunk, num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        explores = mode is Mode.COLLECT
        if self.numpy is None:
            values, carry = self._values(now, carry, rng if explores else None)
        else:
            values = self.numpy.values(now)
        action = values.argmax(-1)
        if explores:
            action = epsilon_greedy(action, values.shape[-1], self.config.epsilon.at(clock), rng)
        return action, carry, {}

    @torch.inference_mode()
    def _values(self, now: Row, carry: Carry, rng: np.random.Generator | None) -> tuple[Array, Carry]:
        """Values (N, A) of arriving rows, with new noise where layers are noisy and ``rng`` is given; the carry."""
        self.online.draw_noise(rng)
        features, carry = look(self.online.trunk, now, carry, self.backend)
        return self.online.head.values(self.online.head(features)).cpu().numpy(), carry

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One step on transitions (B, n + 1), or on windows (B, T)."""
        steps = self.replay.steps(batch, self.config.gamma, self.config.n_step)
        learn = self._learn if self.numpy is None else self._learn_by_numpy
        loss, chosen, norm, losses = learn(steps, clock, rng)
        self._move_target(clock)
        metrics = {"loss": loss, "value": chosen, "grad_norm": norm, "epsilon": self.config.epsilon.at(clock)}
        metrics |= self.optimizer.due_norms({"trunk": [self.online.trunk], "head": [self.online.head]}, norm)
        return Update(metrics, 1, self._priorities(batch, steps, losses))

    def _learn(self, steps: Steps, clock: Clock, rng: np.random.Generator) -> Learnt:
        self.online.draw_noise(rng)
        self.target.draw_noise(rng)
        told: list[tuple[Tensor, Tensor, Tensor]] = []
        parts = self._losses(steps, told)
        norm = self.optimizer.step(parts, self.config.learning_rate.at(clock), self.config.max_grad_norm)
        loss, value, losses = zip(*told, strict=True)
        return Learnt(sum(loss), sum(value), norm, torch.cat(losses))

    def _losses(self, steps: Steps, told: list[Any]) -> Iterator[Tensor]:
        """The batch's loss, in as many parts as the backend wants; what is to be told of each is added to ``told``."""
        size = self.backend.microbatch_size(len(steps.action))
        for begin in range(0, len(steps.action), size):
            part = slice(begin, begin + size)
            start, reached = (
                self.backend.to_tensors({key: value[part] for key, value in side.items()})
                for side in (steps.start, steps.reached)
            )
            rows = self.backend.to_tensors({name: getattr(steps, name)[part].reshape(-1) for name in Steps._fields[2:]})
            chosen = _pick(self.online(start), rows["action"])
            with torch.no_grad():
                following = self._following(reached)
            losses = self.online.head.loss(chosen, following, rows["reward"], rows["discount"])
            loss = torch.dot(losses, rows["share"])
            with torch.no_grad():
                value = torch.dot(self.online.head.values(chosen.unsqueeze(1)).squeeze(1), rows["weight"])
            told.append((loss.detach(), value, losses.detach()))
            yield loss

    @quietly
    def _learn_by_numpy(self, steps: Steps, clock: Clock, rng: np.random.Generator) -> Learnt:
        """The same for plain networks, with the gradients written out."""
        assert self.numpy is not None
        following = self.numpy.following(steps.reached, self.config.double)
        kept = self.numpy.forward(steps.start)
        chosen = kept[-1][np.arange(len(steps.action)), steps.action]
        losses, slope = huber_gradient(chosen, steps.reward + steps.discount * following)
        self.numpy.backward(steps.action, slope * steps.share, kept)
        norm = self.optimizer.apply(self.config.learning_rate.at(clock), self.config.max_grad_norm)
        return Learnt(losses @ steps.share, chosen @ steps.weight, norm, torch.from_numpy(losses))

    def _following(self, observation: Mapping[str, Tensor]) -> Tensor:
        """The target network's output for the action that would be taken next (B, K)."""
        output = self.target(observation)
        judge = self.online(observation) if self.config.double else output
        return _pick(output, self.online.head.values(judge).argmax(-1))

    def _move_target(self, clock: Clock) -> None:
        if (clock.updates + 1) % self.config.target_every == 0:
            self.target_flat.lerp_(self.optimizer.flat.data, self.config.target_rate)

    def _priorities(self, batch: Batch, steps: Steps, losses: Tensor) -> WriteBack | None:
        """How surprising each sample was, for buffers that sample by it."""
        if "importance" not in batch:
            return None
        surprise = self.online.head.surprise(losses).cpu().numpy()
        return WriteBack(batch["id"][:, 0], {"priority": self.replay.priority(steps, surprise)})

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

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The loss on data that were kept from training, without noise in the layers."""
        self.online.draw_noise(None)
        self.target.draw_noise(None)
        told: list[tuple[Tensor, Tensor, Tensor]] = []
        list(self._losses(self.replay.steps(batch, self.config.gamma, self.config.n_step), told))
        loss, value, _ = zip(*told, strict=True)
        return {"loss": float(sum(loss)), "value": float(sum(value))}


def _pick(output: Tensor, action: Tensor) -> Tensor:
    """The outputs (B, K) of the actions taken. Indexing would do it too, but its gradient is slow when exact."""
    return output.gather(1, action[:, None, None].expand(-1, 1, output.shape[-1])).squeeze(1)
