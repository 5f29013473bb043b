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
from reverie.nets.numpy_policy import NumpyNetwork, make_numpy_network
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
        self.numpy_actor: NumpyNetwork | None = None
        if orthogonal:
            for trunk in (self.actor_trunk, self.critic_trunk):
                orthogonal_init(trunk, TRUNK_GAIN)
            scale_weights(self.action_head.output, 0.01)
            scale_weights(self.value_head, 1.0)

    def prepare_acting(self) -> None:
        """Call once the weights have found their place in an optimiser: small networks then act through numpy."""
        self.numpy_actor = make_numpy_network(self.actor_trunk, self.action_head.output)

    @torch.inference_mode()
    def action_outputs(self, now: Row) -> Array:
        """What the action head's last layer says of arriving rows (B, size)."""
        if self.numpy_actor is not None:
            return self.numpy_actor(now)
        observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
        output: Array = self.action_head.output(self.actor_trunk(observation)).cpu().numpy()
        return output

    def policy(self, observation: Mapping[str, Tensor]) -> Distribution:
        return self.action_head(self.actor_trunk(observation))

    def value(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.value_head(self.critic_trunk(observation)).squeeze(-1)

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        features = self.actor_trunk(observation)
        others = features if self.critic_trunk is self.actor_trunk else self.critic_trunk(observation)
        return self.action_head(features), self.value_head(others).squeeze(-1)


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
