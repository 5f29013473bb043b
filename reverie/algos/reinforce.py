"""REINFORCE: Williams 1992, "Simple statistical gradient-following algorithms for connectionist RL".

Learns from whole episodes. Truncated ones are bootstrapped by the baseline if there is one; without it what lies behind
the cut counts as nothing, as in the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from reverie import backend
from reverie.agents.actor_critic import ActorCriticMemory
from reverie.agents.recurrent_actor_critic import make_actor_critic
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Episodes, Read
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, Update, is_last
from reverie.data.rows import transitions
from reverie.functional import losses
from reverie.functional.returns import discounted_return
from reverie.nets.encoders import AutoNetwork
from reverie.nets.optim import Adam


class ReinforceConfig(ComponentConfig):
    """REINFORCE."""

    built_once = frozenset({"shared_trunk", "initial_log_std"})

    kind: str = "reinforce"
    learning_rate: Rate = constant(1e-3)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    returns: Literal["reward_to_go", "episode"] = "reward_to_go"
    """What an action is credited with: what came after it, or the whole episode."""
    targets: Literal["returns", "advantages"] = "advantages"
    """advantages: a baseline that learns the reward to go is subtracted from the returns."""
    normalise: bool = True
    """Bring what actions are credited with to mean 0 and deviation 1 in each update."""
    entropy_weight: float = Field(0.0, ge=0)
    """Reward for randomness of the policy."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the baseline's loss."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Gradients longer than this are shortened to it."""
    shared_trunk: bool = False
    """Whether policy and baseline share the network up to their last layers."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The trunk."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config()
    """The optimiser."""
    initial_log_std: float = 0.0
    """Logarithm of the initial deviation of continuous actions."""


class Reinforce(ActorCriticMemory):
    """An agent for every observation and action kind of :mod:`reverie.core.specs`."""

    Config = ReinforceConfig
    traits = Traits(
        actions=("discrete", "continuous", "multi_discrete", "multi_binary"), on_policy=True, recurrent=True,
        microbatches=True,
    )  # fmt: skip

    def __init__(self, config: ReinforceConfig, specs: Specs, rng: np.random.Generator) -> None:
        self.config = config
        self.specs = specs
        self.reads: dict[str, Read] = {"update": Episodes()}
        with backend.seeded(rng):
            settings = {"shared_trunk": config.shared_trunk, "initial_log_std": config.initial_log_std}
            model = make_actor_critic(config.network, specs, **settings)
        self.model = model.to(backend.device())
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.model.parameters())
        self.model.prepare_numpy()

    def initial_carry(self, num_envs: int) -> Carry:
        return self.model.initial_carry(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        head = self.model.action_head
        noise = head.draw_noise(rng, len(now["is_first"])) if mode is Mode.COLLECT else None
        outputs, carry, _ = self.model.answer(now, carry)  # episodes begin with an empty memory: nothing to keep
        return head.choose(outputs, noise), carry, {}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step on whole episodes (E, T)."""
        told: list[tuple[Tensor, ...]] = []
        parts = self._losses(backend.to_tensors(batch), told)
        norm = self.optimizer.step(parts, self.config.learning_rate.at(clock), self.config.max_grad_norm)
        names = ("loss", "policy_loss", "value_loss", "entropy")
        metrics = {name: sum(values) for name, values in zip(names, zip(*told, strict=True), strict=True)}
        metrics["grad_norm"] = norm
        return Update(metrics | self.optimizer.norms_by_part(self.model.parts(), norm))

    def _losses(self, rows: dict[str, Tensor], told: list[Any]) -> Iterator[Tensor]:
        """The loss, in parts of some episodes each if the backend wants so; what each has to tell is added to ``told``.

        What actions are credited with follows from all episodes, so several parts are looked at once before.
        """
        config, size = self.config, backend.part_size(len(rows["is_first"]))
        parts = [
            {key: value[i : i + size] for key, value in rows.items()} for i in range(0, len(rows["is_first"]), size)
        ]
        seen = self.model.unroll(rows) if len(parts) == 1 else None  # (E * (T - 1)), (E, T)
        with torch.no_grad():
            values = torch.cat([self.model.unroll(part)[1] for part in parts]) if seen is None else seen[1].detach()
        to_go, credit, total = self._credit(rows, values)
        for part, part_to_go, part_credit in zip(parts, to_go.split(size), credit.split(size), strict=True):
            policy, value = seen or self.model.unroll(part)
            now, _, weight = transitions(part)
            log_prob = policy.log_prob(now["action"].flatten(0, 1)).unflatten(0, weight.shape)
            policy_loss = -losses.weighted_mean(log_prob * part_credit, weight, total)
            entropy = losses.weighted_mean(policy.entropy().unflatten(0, weight.shape), weight, total)
            value_loss = losses.weighted_mean((value[:, :-1] - part_to_go).square(), weight, total)
            loss = policy_loss - config.entropy_weight * entropy
            if config.targets == "advantages":
                loss = loss + config.value_weight * value_loss
            told.append((loss.detach(), policy_loss.detach(), value_loss.detach(), entropy.detach()))
            yield loss

    def _credit(self, rows: dict[str, Tensor], values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards to go, what actions are credited with (both (E, T - 1)), and the weight of all."""
        _, then, weight = transitions(rows)
        bootstrap = values[:, 1:] if self.config.targets == "advantages" else None
        to_go = discounted_return(
            then["reward"], then["terminated"], is_last(then), weight, self.config.gamma, bootstrap
        )  # fmt: skip
        # An entry is one episode, so its first return is that of the whole. The baseline learns the reward to go even
        # then: it stands for what lies behind a cut, and the whole return would count what came before it again.
        credit = to_go if self.config.returns == "reward_to_go" else to_go[:, :1] * weight
        if self.config.targets == "advantages":
            # A baseline may not know what the return does not: the whole return is that of the first row.
            credit = credit - (values[:, :-1] if self.config.returns == "reward_to_go" else values[:, :1] * weight)
        if self.config.normalise:
            mean = losses.weighted_mean(credit, weight)
            credit = (credit - mean) / (losses.weighted_std(credit, weight) + 1e-8)
        return to_go, credit, weight.sum()
