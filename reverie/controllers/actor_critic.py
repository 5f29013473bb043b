"""A policy and a value function over one or two trunks: the networks of PPO and REINFORCE."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from reverie import backend
from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.specs import Specs
from reverie.core.types import Array, Row, State, observation_keys
from reverie.nets.distributions import Distribution
from reverie.nets.heads import TRUNK_GAIN, make_action_head, scale_weights
from reverie.nets.layers import orthogonal_init
from reverie.nets.numpy_distributions import NumpyDistribution, has_numpy_form, make_numpy_distribution
from reverie.nets.numpy_mlp import Kept, NumpyInput, NumpyLayer, NumpyMLP, is_plain_mlp, make_numpy_layers
from reverie.nets.optim import FlatOptimizer


class ActorCritic(nn.Module):
    """Built from a trunk's config and the env's specs."""

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
        make = registry.load("network", network.kind)
        self.actor_trunk = make(network, specs.observations)
        self.critic_trunk = self.actor_trunk if shared_trunk else make(network, specs.observations)
        features = self.actor_trunk.features
        self.action_head = make_action_head(features, specs.action, state_dependent_noise, initial_log_std)
        self.value_head = nn.Linear(features, 1)
        self.numpy: NumpyActorCritic | None = None
        if orthogonal:
            for trunk in (self.actor_trunk, self.critic_trunk):
                orthogonal_init(trunk, TRUNK_GAIN)
            scale_weights(self.action_head.output, 0.01)
            scale_weights(self.value_head, 1.0)

    def prepare_numpy(self) -> None:
        """Call once weights and gradients have found their places in an optimiser: see :mod:`.numpy_mlp`."""
        plain = is_plain_mlp(self.actor_trunk) and is_plain_mlp(self.critic_trunk)
        self.numpy = NumpyActorCritic(self) if plain and has_numpy_form(self.action_head) else None

    @torch.inference_mode()
    def action_outputs(self, now: Row) -> Array:
        """What the action head's last layer says of arriving rows (B, size)."""
        if self.numpy is not None:
            return self.numpy.action_outputs(now)
        observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
        output: Array = self.action_head.output(self.actor_trunk(observation)).cpu().numpy()
        return output

    def parts(self) -> dict[str, list[nn.Module]]:
        """Which modules serve what, for numbers about each."""
        if self.critic_trunk is self.actor_trunk:
            return {"trunk": [self.actor_trunk], "actor": [self.action_head], "critic": [self.value_head]}
        return {"actor": [self.actor_trunk, self.action_head], "critic": [self.critic_trunk, self.value_head]}

    def policy(self, observation: Mapping[str, Tensor]) -> Distribution:
        return self.action_head(self.actor_trunk(observation))

    def value(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.value_head(self.critic_trunk(observation)).squeeze(-1)

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        features = self.actor_trunk(observation)
        others = features if self.critic_trunk is self.actor_trunk else self.critic_trunk(observation)
        return self.action_head(features), self.value_head(others).squeeze(-1)


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
