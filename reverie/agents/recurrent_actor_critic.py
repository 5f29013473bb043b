"""A policy and a value function over recurrent trunks.

The carry holds the hidden states of both trunks. Acting adds the hidden state before each row to the extras; the buffer
keeps that of a rollout's first row. Learning starts from it and runs over whole sequences, so a minibatch is made of
the whole rollouts of some envs. No gradient flows into the hidden state a rollout starts with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.agents.actor_critic import ActorCritic
from reverie.core.config import ComponentConfig
from reverie.core.traits import is_recurrent
from reverie.core.types import CARRY, Carry, Row, observation_keys
from reverie.nets.distributions import Distribution
from reverie.nets.layers import TRUNK_GAIN, orthogonal_init


def make_actor_critic(network: ComponentConfig, *arguments: Any, **settings: Any) -> ActorCritic:
    """The class that fits the trunk."""
    return (RecurrentActorCritic if is_recurrent(network.kind) else ActorCritic)(network, *arguments, **settings)


class RecurrentActorCritic(ActorCritic):
    """Takes the same settings as its base."""

    def initialise_trunks(self) -> None:
        """Orthogonal weights in the encoders. Recurrent layers initialise themselves."""
        for trunk in self._trunks().values():
            if not trunk.encoder.is_initialised:
                orthogonal_init(trunk.encoder, TRUNK_GAIN)

    def initial_carry(self, num_envs: int) -> Carry:
        hidden = {name: trunk.initial_hidden(num_envs) for name, trunk in self._trunks().items()}
        return {f"{name}/{key}": array for name, arrays in hidden.items() for key, array in arrays.items()}

    @torch.inference_mode()
    def actor_features(self, now: Row, carry: Carry) -> tuple[Tensor, Carry, Row]:
        tensors = self.backend.to_tensors({key: now[key] for key in (*observation_keys(now), "is_first")})
        is_first = tensors.pop("is_first")
        before, after = {key: carry[key] for key in self._hidden_keys(carry)}, dict(carry)
        for name, trunk in self._trunks().items():
            features, hidden = trunk.step(tensors, is_first, self.backend.to_tensors(_below(before, f"{name}/")))
            after |= {f"{name}/{key}": value.cpu().numpy() for key, value in hidden.items()}
            if name == "actor":
                actor_features = features
        return actor_features, after, {CARRY + key: value for key, value in before.items()}

    def evaluate_sequences(self, batch: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        actor, critic = self._features(batch, batch["is_first"], self._initial_hidden(batch))
        return self.action_head(actor[:, :-1].flatten(0, 1)), self.value_head(critic).squeeze(-1)

    def flat_inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rows (B * T, ...) as in the base, and the initial hidden state of each sequence, ``carry/*`` (B, ...)."""
        initial = {CARRY + key: value for key, value in self._initial_hidden(batch).items()}
        return {**super().flat_inputs(batch), "is_first": batch["is_first"][:, :-1].flatten(), **initial}

    def shuffle(self, rows: Mapping[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """Whole sequences in random order."""
        length = _sequence_length(rows)
        order = self.backend.to_tensor(rng.permutation(len(rows["weights"]) // length))
        row_order = (order.unsqueeze(1) * length + torch.arange(length, device=order.device)).flatten()
        return {key: value[order if key.startswith(CARRY) else row_order] for key, value in rows.items()}

    def nearest_batch_size(self, rows: Mapping[str, Any], wanted: int) -> int:
        """As many whole sequences as fit, at least one."""
        length = _sequence_length(rows)
        return max(1, wanted // length) * length

    def split(self, rows: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
        sequences_each = size // _sequence_length(rows)
        initial = {key: rows[key] for key in rows if key.startswith(CARRY)}
        others = {key: rows[key] for key in rows if key not in initial}
        for index, minibatch in enumerate(super().split(others, size)):
            first = index * sequences_each
            yield {**minibatch, **{key: value[first : first + sequences_each] for key, value in initial.items()}}

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """Policy and values (B * T) of what :meth:`flat_inputs` returned, or of whole sequences of it."""
        sequences = (-1, _sequence_length(rows))
        observation = {key: rows[key].unflatten(0, sequences) for key in observation_keys(rows)}
        is_first = rows["is_first"].unflatten(0, sequences)
        actor, critic = self._features(observation, is_first, _below(rows, CARRY))
        return self.action_head(actor.flatten(0, 1)), self.value_head(critic).flatten()

    def _trunks(self) -> dict[str, Any]:
        trunks = {"actor": self.actor_trunk, "critic": self.critic_trunk}
        return trunks if self.critic_trunk is not self.actor_trunk else {"actor": self.actor_trunk}

    def _hidden_keys(self, carry: Carry) -> list[str]:
        return [key for key in carry if key.startswith(tuple(f"{name}/" for name in self._trunks()))]

    def _initial_hidden(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The hidden state before the first row of each sequence: stored with it, or that of a new episode."""
        stored = {key: value.squeeze(1) for key, value in _below(batch, CARRY).items()}
        return stored or self.backend.to_tensors(self.initial_carry(len(batch["is_first"])))

    def _features(
        self, batch: Mapping[str, Tensor], is_first: Tensor, initial: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Features (B, T, F) of the actor's and the critic's trunk for rows (B, T)."""
        observation = {key: batch[key] for key in observation_keys(batch)}
        features = [trunk(observation, is_first, _below(initial, f"{name}/")) for name, trunk in self._trunks().items()]
        return features[0], features[-1]


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries under a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def _sequence_length(rows: Mapping[str, Any]) -> int:
    """Rows per sequence of flat rows. Each sequence has one initial hidden state."""
    return len(rows["is_first"]) // next(len(value) for key, value in rows.items() if key.startswith(CARRY))
