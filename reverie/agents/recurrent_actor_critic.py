"""Policy and value function over trunks that remember (:mod:`reverie.nets.memory`).

The carry holds the memories of both trunks. Acting hands the one before each row to the buffer, which keeps the first
of a rollout; learning starts from it and runs over whole stretches of rows, so that a minibatch is made of some envs'
whole rollouts. Memories from before the rollout are constants: gradients end there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie import backend
from reverie.agents.actor_critic import ActorCritic
from reverie.core.config import ComponentConfig
from reverie.core.traits import is_recurrent
from reverie.core.types import CARRY, Array, Carry, Row, observation_keys
from reverie.nets.distributions import Distribution
from reverie.nets.layers import TRUNK_GAIN, orthogonal_init


def make_actor_critic(network: ComponentConfig, *arguments: Any, **settings: Any) -> ActorCritic:
    """The actor-critic that fits the trunk."""
    has_memory = is_recurrent(network.kind)
    return (MemoryActorCritic if has_memory else ActorCritic)(network, *arguments, **settings)


class MemoryActorCritic(ActorCritic):
    """Takes the same settings as its base."""

    def initialise_trunks(self) -> None:
        """What remembers has initial weights of its own; the encoder before it gets the usual ones."""
        for trunk in self._trunks().values():
            encoder = getattr(trunk, "encoder", None)
            if encoder is not None and not encoder.is_initialised:
                orthogonal_init(encoder, TRUNK_GAIN)

    def initial_carry(self, num_envs: int) -> Carry:
        memories = {name: trunk.initial_memory(num_envs) for name, trunk in self._trunks().items()}
        return {f"{name}/{key}": array for name, memory in memories.items() for key, array in memory.items()}

    @torch.inference_mode()
    def answer(self, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        features, after, extras = self.actor_features(now, carry)
        output: Array = self.action_head.output(features).cpu().numpy()
        return output, after, extras

    @torch.inference_mode()
    def actor_features(self, now: Row, carry: Carry) -> tuple[Tensor, Carry, Row]:
        tensors = backend.to_tensors({key: now[key] for key in (*observation_keys(now), "is_first")})
        is_first = tensors.pop("is_first")
        before, after = {key: carry[key] for key in self._memory_keys(carry)}, dict(carry)
        for name, trunk in self._trunks().items():
            features, memory = trunk.step(tensors, is_first, backend.to_tensors(_below(before, f"{name}/")))
            after |= {f"{name}/{key}": value.cpu().numpy() for key, value in memory.items()}
            if name == "actor":
                actor_features = features
        return actor_features, after, {CARRY + key: value for key, value in before.items()}

    def unroll(self, batch: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        actor, critic = self._features(batch, batch["is_first"], self._start(batch))
        return self.action_head(actor[:, :-1].flatten(0, 1)), self.value_head(critic).squeeze(-1)

    def inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rows (B * T) as in the base, and with them what each stretch began with, ``carry/*`` (B, ...)."""
        start = {CARRY + key: value for key, value in self._start(batch).items()}
        return {**super().inputs(batch), "is_first": batch["is_first"][:, :-1].flatten(), **start}

    def shuffle(self, rows: Mapping[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """Whole stretches in random order."""
        length = _stretch_length(rows)
        order = torch.as_tensor(rng.permutation(len(rows["weight"]) // length), device=backend.device())
        places = (order.unsqueeze(1) * length + torch.arange(length, device=order.device)).flatten()
        return {key: value[order if key.startswith(CARRY) else places] for key, value in rows.items()}

    def batch_rows(self, rows: Mapping[str, Any], wanted: int) -> int:
        """As many whole stretches as fit, at least one."""
        length = _stretch_length(rows)
        return max(1, wanted // length) * length

    def cut(self, rows: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
        per_batch = size // _stretch_length(rows)
        carries = {key: rows[key] for key in rows if key.startswith(CARRY)}
        others = {key: rows[key] for key in rows if key not in carries}
        for index, minibatch in enumerate(super().cut(others, size)):
            first = index * per_batch
            yield {**minibatch, **{key: value[first : first + per_batch] for key, value in carries.items()}}

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Distribution, Tensor]:
        """Policy and values (B * T) of what :meth:`inputs` gave."""
        stretches = (-1, _stretch_length(rows))
        observation = {key: rows[key].unflatten(0, stretches) for key in observation_keys(rows)}
        memory = _below(rows, CARRY)
        actor, critic = self._features(observation, rows["is_first"].unflatten(0, stretches), memory)
        return self.action_head(actor.flatten(0, 1)), self.value_head(critic).flatten()

    def _trunks(self) -> dict[str, Any]:
        trunks = {"actor": self.actor_trunk, "critic": self.critic_trunk}
        return trunks if self.critic_trunk is not self.actor_trunk else {"actor": self.actor_trunk}

    def _memory_keys(self, carry: Carry) -> list[str]:
        return [key for key in carry if key.startswith(tuple(f"{name}/" for name in self._trunks()))]

    def _start(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What was remembered before the first row of each stretch; nothing, if the rows do not say."""
        given = {key: value.squeeze(1) for key, value in _below(batch, CARRY).items()}
        return given or backend.to_tensors(self.initial_carry(len(batch["is_first"])))

    def _features(
        self, batch: Mapping[str, Tensor], is_first: Tensor, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """What both trunks make of rows (B, T): (B, T, features)."""
        observation = {key: batch[key] for key in observation_keys(batch)}
        found = [
            trunk(observation, is_first, _below(memory, f"{name}/")) for name, trunk in self._trunks().items()
        ]  # fmt: skip
        return found[0], found[-1]


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries under a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def _stretch_length(rows: Mapping[str, Any]) -> int:
    """Rows of a stretch; each stretch has one carry."""
    return len(rows["is_first"]) // next(len(value) for key, value in rows.items() if key.startswith(CARRY))
