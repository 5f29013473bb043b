"""A policy and a value function over one or two trunks: the networks of PPO and REINFORCE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reverie.agents.action_network import MostLikelyAction
from reverie.agents.inspection import describe_policy
from reverie.agents.numpy_actor_critic import NumpyActorCritic, has_numpy_engine
from reverie.backend import load_module_state, module_state
from reverie.core.config import ComponentConfig
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Inspection, Row, State, observation_keys
from reverie.nets.backend_module import BackendModule
from reverie.nets.distributions import Distribution
from reverie.nets.heads import make_action_head, scale_weights
from reverie.nets.layers import TRUNK_GAIN, orthogonal_init
from reverie.nets.networks import make_network
from reverie.nets.optim import FlatOptimizer


class ActorCritic(BackendModule):
    """Built from a trunk's config and the env's specs.

    :mod:`.recurrent_actor_critic` overrides the methods that depend on a hidden state. Batches are sequences of rows
    (B, T + 1): the last row of each only arrived, its action is not known yet.
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
        """Orthogonal weights, except in networks that initialise themselves."""
        for trunk in (self.actor_trunk, self.critic_trunk):
            if not trunk.is_initialised:
                orthogonal_init(trunk, TRUNK_GAIN)

    def use_numpy_engine(self) -> None:
        """Act through numpy where possible. Call it after the optimiser was built, which moves the weights."""
        self.numpy = NumpyActorCritic(self) if has_numpy_engine(self) else None

    def modules_by_role(self) -> dict[str, list[nn.Module]]:
        """For gradient norms by role."""
        if self.critic_trunk is self.actor_trunk:
            return {"trunk": [self.actor_trunk], "actor": [self.action_head], "critic": [self.value_head]}
        return {"actor": [self.actor_trunk, self.action_head], "critic": [self.critic_trunk, self.value_head]}

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act_outputs(self, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        """Outputs of the action head (N, size) for arriving rows, the next carry, and extras for the buffer."""
        if self.numpy is not None:
            return self.numpy.action_outputs(now), carry, {}
        return self._torch_act_outputs(now, carry)

    @torch.inference_mode()
    def _torch_act_outputs(self, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        features, carry, extras = self.actor_features(now, carry)
        output: Array = self.action_head.output(features).cpu().numpy()
        return output, carry, extras

    @torch.inference_mode()
    def actor_features(self, now: Row, carry: Carry) -> tuple[Tensor, Carry, Row]:
        """Like :meth:`act_outputs`, with the features of the actor's trunk (N, F)."""
        return self.actor_trunk(self.backend.to_tensors({key: now[key] for key in observation_keys(now)})), carry, {}

    # ---------------------------------------------------------------- learning from sequences

    def evaluate_sequences(self, batch: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """The policy in all rows but the last of each sequence (B * T), and the values of all rows (B, T + 1)."""
        flat = {key: batch[key].flatten(0, 1) for key in observation_keys(batch)}
        values = self._by_microbatch(self.value, flat).unflatten(0, batch["is_first"].shape)
        return self.action_head(self._by_microbatch(self.actor_trunk, self.flat_inputs(batch))), values

    def _by_microbatch(self, network: Callable[..., Tensor], rows: Mapping[str, Tensor]) -> Tensor:
        size = self.backend.microbatch_size(len(next(iter(rows.values()))))
        columns = {key: value.split(size) for key, value in rows.items()}
        microbatches = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return torch.cat([network(microbatch) for microbatch in microbatches])

    def flat_inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What :meth:`forward` reads, for all rows but the last of each sequence (B * T, ...)."""
        return {key: batch[key][:, :-1].flatten(0, 1) for key in observation_keys(batch)}

    def shuffle(self, rows: Mapping[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """Flat rows in random order. One gather here makes every minibatch a view."""
        order = self.backend.to_tensor(rng.permutation(len(rows["weights"])))
        return {key: value[order] for key, value in rows.items()}

    def nearest_batch_size(self, rows: Mapping[str, Any], wanted: int) -> int:
        """The size closest to ``wanted`` that :meth:`split` can make."""
        return min(wanted, len(rows["weights"]))

    def split(self, rows: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
        """Minibatches of shuffled rows, or microbatches of a minibatch; tensors or arrays."""
        for start in range(0, len(rows["weights"]), size):
            yield {key: value[start : start + size] for key, value in rows.items()}

    def policy(self, observation: Mapping[str, Tensor]) -> Distribution:
        policy: Distribution = self.action_head(self.actor_trunk(observation))
        return policy

    def value(self, observation: Mapping[str, Tensor]) -> Tensor:
        value: Tensor = self.value_head(self.critic_trunk(observation)).squeeze(-1)
        return value

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """Policy and values (R,) of flat rows. Columns other than observations are ignored."""
        observation = {key: rows[key] for key in observation_keys(rows)}
        features = self.actor_trunk(observation)
        others = features if self.critic_trunk is self.actor_trunk else self.critic_trunk(observation)
        return self.action_head(features), self.value_head(others).squeeze(-1)


class ActorCriticAgent:
    """Base of agents with one actor-critic ``model`` and one ``optimizer``."""

    model: ActorCritic
    optimizer: FlatOptimizer

    @torch.inference_mode()
    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        keys = (*observation_keys(rows), "is_first")
        repeated = {key: np.concatenate([rows[key], rows[key][:, -1:]], axis=1) for key in keys}
        policy, values = self.model.evaluate_sequences(self.model.backend.to_tensors(repeated))
        shape = rows["is_first"].shape
        described = {key: array.reshape(*shape, *array.shape[1:]) for key, array in describe_policy(policy).items()}
        return Inspection(described, values[:, :-1].cpu().numpy())

    def action_network(self) -> nn.Module | None:
        is_recurrent = bool(self.model.initial_carry(1))
        return None if is_recurrent else MostLikelyAction(self.model.actor_trunk, self.model.action_head)

    def policy_state(self) -> State:
        return module_state(self.model)

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.model, state)

    def state(self) -> State:
        return {"model": self.policy_state(), "optimizer": self.optimizer.state()}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state["model"])
        self.optimizer.load_state(state["optimizer"])
