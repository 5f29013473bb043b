"""A policy and a value function over one or two trunks: the networks of PPO and REINFORCE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reverie import backend
from reverie.core.config import ComponentConfig
from reverie.core.specs import Specs
from reverie.core.types import Array, Carry, Row, State, observation_keys
from reverie.nets.distributions import Distribution
from reverie.nets.heads import make_action_head, scale_weights
from reverie.nets.layers import TRUNK_GAIN, orthogonal_init
from reverie.nets.networks import make_network
from reverie.nets.numpy.distributions import NumpyDistribution, has_numpy_form, make_numpy_distribution
from reverie.nets.numpy.mlp import Kept, NumpyInput, NumpyLayer, NumpyMLP, is_plain_mlp, make_numpy_layers
from reverie.nets.optim import FlatOptimizer


class ActorCritic(nn.Module):
    """Built from a trunk's config and the env's specs.

    Agents ask it three things that depend on whether its trunks remember (:mod:`.memory_actor_critic`): what it carries
    from row to row, what it says of whole stretches of rows, and how these may be cut into minibatches.
    """

    def __init__(
        self,
        network: ComponentConfig,
        specs: Specs,
        shared_trunk: bool = False,
        orthogonal: bool = True,
        state_dependent_noise: bool = False,
        initial_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.actor_trunk = make_network(network, specs.observations)
        self.critic_trunk = self.actor_trunk if shared_trunk else make_network(network, specs.observations)
        features = self.actor_trunk.features
        self.action_head = make_action_head(features, specs.action, state_dependent_noise, initial_log_std)
        self.value_head = nn.Linear(features, 1)
        self.numpy: NumpyActorCritic | None = None
        if orthogonal:
            self.initialise_trunks()
            scale_weights(self.action_head.output, 0.01)
            scale_weights(self.value_head, 1.0)

    def initialise_trunks(self) -> None:
        """Orthogonal weights, unless the network's config asks for others."""
        for trunk in (self.actor_trunk, self.critic_trunk):
            if not trunk.is_initialised:
                orthogonal_init(trunk, TRUNK_GAIN)

    def prepare_numpy(self) -> None:
        """Call once weights and gradients have found their places in an optimiser: see :mod:`.numpy_mlp`."""
        plain = is_plain_mlp(self.actor_trunk) and is_plain_mlp(self.critic_trunk)
        self.numpy = NumpyActorCritic(self) if plain and has_numpy_form(self.action_head) else None

    @torch.inference_mode()
    def action_outputs(self, now: Row) -> Array:
        """What the action head's last layer says of arriving rows (B, size)."""
        if self.numpy is not None:
            return self.numpy.action_outputs(now)
        output: Array = self.action_head.output(self.actor_trunk(_observation(now))).cpu().numpy()
        return output

    def parts(self) -> dict[str, list[nn.Module]]:
        """Which modules serve what, for numbers about each."""
        if self.critic_trunk is self.actor_trunk:
            return {"trunk": [self.actor_trunk], "actor": [self.action_head], "critic": [self.value_head]}
        return {"actor": [self.actor_trunk, self.action_head], "critic": [self.critic_trunk, self.value_head]}

    # ---------------------------------------------------------------- what depends on memory

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def answer(self, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        """The outputs for arriving rows, the carry behind them, and what the buffer has to keep."""
        return self.action_outputs(now), carry, {}

    @torch.inference_mode()
    def actor_features(self, now: Row, carry: Carry) -> tuple[Tensor, Carry, Row]:
        """The same, but for what the actor's trunk makes of the rows (B, features)."""
        return self.actor_trunk(_observation(now)), carry, {}

    def unroll(self, batch: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """Rows (B, T + 1): the policy in all but the last of each stretch (B * T), values of all (B, T + 1)."""
        flat = {key: batch[key].flatten(0, 1) for key in observation_keys(batch)}
        values = self._in_parts(self.value, flat).unflatten(0, batch["is_first"].shape)
        return self.action_head(self._in_parts(self.actor_trunk, self.inputs(batch))), values

    def _in_parts(self, network: Callable[..., Tensor], rows: Mapping[str, Tensor]) -> Tensor:
        """What a network makes of rows, as many at a time as the backend wants."""
        size = backend.part_size(len(next(iter(rows.values()))))
        columns = {key: value.split(size) for key, value in rows.items()}
        parts = [dict(zip(columns, part, strict=True)) for part in zip(*columns.values(), strict=True)]
        return torch.cat([network(part) for part in parts])

    def inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What :meth:`forward` needs to know of all but the last row of each stretch (B * T)."""
        return {key: batch[key][:, :-1].flatten(0, 1) for key in observation_keys(batch)}

    def shuffle(self, rows: Mapping[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """Rows in random order: one gather, then minibatches are free slices."""
        order = torch.as_tensor(rng.permutation(len(rows["weight"])), device=backend.device())
        return {key: value[order] for key, value in rows.items()}

    def batch_rows(self, rows: Mapping[str, Any], wanted: int) -> int:
        """How many rows a minibatch has if so many are wanted."""
        return min(wanted, len(rows["weight"]))

    def cut(self, rows: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
        """The minibatches of shuffled rows, tensors or arrays."""
        for start in range(0, len(rows["weight"]), size):
            yield {key: value[start : start + size] for key, value in rows.items()}

    # ---------------------------------------------------------------- single rows

    def policy(self, observation: Mapping[str, Tensor]) -> Distribution:
        return self.action_head(self.actor_trunk(observation))

    def value(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.value_head(self.critic_trunk(observation)).squeeze(-1)

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """Policy and values (B) of rows that may hold more than observations, which no trunk shall see."""
        observation = {key: rows[key] for key in observation_keys(rows)}
        features = self.actor_trunk(observation)
        others = features if self.critic_trunk is self.actor_trunk else self.critic_trunk(observation)
        return self.action_head(features), self.value_head(others).squeeze(-1)


def _observation(now: Row) -> dict[str, Tensor]:
    return backend.to_tensors({key: now[key] for key in observation_keys(now)})


class NumpyActorCritic:
    """An actor-critic of plain fully connected layers, forwards and backwards in numpy."""

    def __init__(self, model: ActorCritic) -> None:
        self.inputs = NumpyInput(model.actor_trunk.inputs)
        self.action_head = model.action_head
        self.is_shared = model.critic_trunk is model.actor_trunk
        self.actor_trunk = NumpyMLP(make_numpy_layers(model.actor_trunk.layers))
        self.critic_trunk = NumpyMLP(make_numpy_layers(model.critic_trunk.layers))
        self.action_output = NumpyMLP([NumpyLayer(model.action_head.output)])
        self.value_output = NumpyMLP([NumpyLayer(model.value_head)])

    def action_outputs(self, now: Row) -> Array:
        return self.action_output(self.actor_trunk(self.inputs(now)))

    def forward(self, x: Array, action: Array) -> tuple[NumpyDistribution, Array, list[Kept]]:
        """The policy at flat observations (B, width) with the actions taken there, the values (B,), what was kept."""
        actor = self.actor_trunk.forward(x)
        critic = actor if self.is_shared else self.critic_trunk.forward(x)
        outputs, values = self.action_output.forward(actor[-1]), self.value_output.forward(critic[-1])
        policy = make_numpy_distribution(self.action_head, outputs[-1], action)
        return policy, values[-1][:, 0], [actor, critic, outputs, values]

    def backward(self, output_gradient: Array, value_gradient: Array, kept: list[Kept]) -> None:
        """Set all gradients from the derivatives by the action head's outputs (B, size) and the values (B,)."""
        actor, critic, outputs, values = kept
        to_actor = self.action_output.backward(output_gradient, outputs, wants_input=True)
        to_critic = self.value_output.backward(value_gradient[:, None], values, wants_input=True)
        assert to_actor is not None
        assert to_critic is not None
        if self.is_shared:
            self.actor_trunk.backward(to_actor + to_critic, actor)
        else:
            self.actor_trunk.backward(to_actor, actor)
            self.critic_trunk.backward(to_critic, critic)


class ActorCriticMemory:
    """What agents with one actor-critic ``model`` and one ``optimizer`` remember."""

    model: ActorCritic
    optimizer: FlatOptimizer

    def policy_state(self) -> State:
        return backend.module_state(self.model)

    def load_policy_state(self, state: State) -> None:
        backend.load_module_state(self.model, state)

    def state(self) -> State:
        return {"model": self.policy_state(), "optimizer": self.optimizer.state()}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state["model"])
        self.optimizer.load_state(state["optimizer"])
