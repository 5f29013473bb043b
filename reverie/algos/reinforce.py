"""REINFORCE: Williams 1992, "Simple statistical gradient-following algorithms for connectionist RL".

Learns from whole episodes. With a baseline, truncated episodes bootstrap from its value. Without one, rewards after the
truncation count as 0, as in the original. Equation numbers are those of Sutton & Barto 2018.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from reverie.agents.actor_critic import ActorCriticAgent
from reverie.agents.recurrent_actor_critic import make_actor_critic
from reverie.backend import DEFAULT, Backend, seeded
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
from reverie.nets.backend_module import to_backend
from reverie.nets.distributions import Distribution
from reverie.nets.encoders import AutoNetwork
from reverie.nets.heads import StateDependentHead
from reverie.nets.optim import Adam, Loss


class ReinforceConfig(ComponentConfig):
    """REINFORCE."""

    built_once = frozenset({"shared_trunk", "initial_log_std"})

    kind: str = "reinforce"
    learning_rate: Rate = constant(1e-3)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: weight of a reward one step later."""
    returns: Literal["reward_to_go", "episode"] = "reward_to_go"
    """What multiplies an action's log-probability: the return from that action on, or that of the whole episode."""
    targets: Literal["returns", "advantages"] = "advantages"
    """advantages: subtract a learned baseline (a value function) from the returns."""
    normalise: bool = True
    """Normalise returns or advantages to mean 0 and standard deviation 1 in each update."""
    entropy_weight: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the baseline's loss."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Largest norm of the gradient; empty: no clipping."""
    shared_trunk: bool = False
    """Whether policy and baseline share all but their last layers."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """Network from observations to features. Policy and value have one each unless ``shared_trunk`` is set."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config()
    """Update rule of policy and baseline."""
    initial_log_std: float = 0.0
    """Logarithm of the initial standard deviation of continuous actions."""


class Targets(NamedTuple):
    """Both (E, T - 1)."""

    returns: Tensor
    """Discounted return from each action on. The baseline learns it."""
    advantages: Tensor
    """What multiplies the log-probability of each action."""


class Microbatch(NamedTuple):
    """Some of the episodes of a batch."""

    rows: dict[str, Tensor]
    """(E, T, ...)"""
    targets: Targets
    total_weight: Tensor
    """Number of transitions in the whole batch."""
    outputs: tuple[Distribution, Tensor] | None
    """Policy (E * (T - 1)) and values (E, T), if they were computed already."""


class Reinforce(ActorCriticAgent):
    """For every observation and action kind of :mod:`reverie.core.specs`."""

    Config = ReinforceConfig
    traits = Traits(
        actions=("discrete", "continuous", "multi_discrete", "multi_binary"), on_policy=True, recurrent=True,
        microbatches=True,
    )  # fmt: skip

    def __init__(
        self, config: ReinforceConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.reads: dict[str, Read] = {"update": Episodes()}
        with seeded(rng):
            settings = {"shared_trunk": config.shared_trunk, "initial_log_std": config.initial_log_std}
            model = make_actor_critic(config.network, specs, **settings)
        self.model = to_backend(model, backend)
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.model.parameters())
        self.model.use_numpy_engine()

    def initial_carry(self, num_envs: int) -> Carry:
        return self.model.initial_carry(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        head = self.model.action_head
        assert not isinstance(head, StateDependentHead)  # its config does not offer one
        noise = head.draw_noise(rng, len(now["is_first"])) if mode is Mode.COLLECT else None
        outputs, carry, _ = self.model.act_outputs(now, carry)  # whole episodes start from the initial hidden state
        return head.choose(outputs, noise), carry, {}

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step on whole episodes (E, T)."""
        config = self.config
        microbatches = self.make_microbatches(self.backend.to_tensors(batch))
        result = self.optimizer.minimise(self.loss, microbatches, config.learning_rate.at(clock), config.max_grad_norm)
        norms = self.optimizer.grad_norms(self.model.modules_by_role(), result.grad_norm)
        return Update({**result.metrics, "grad_norm": result.grad_norm, **norms})

    def make_microbatches(self, rows: dict[str, Tensor]) -> list[Microbatch]:
        """Microbatches with their targets, which are normalised over all episodes."""
        size = self.backend.microbatch_size(len(rows["is_first"]))
        split = [
            {key: value[i : i + size] for key, value in rows.items()} for i in range(0, len(rows["is_first"]), size)
        ]
        outputs = None
        if len(split) == 1:  # one forward pass serves both targets and loss
            outputs = self.model.evaluate_sequences(rows)
            values = outputs[1].detach()
        else:
            with torch.no_grad():
                values = torch.cat([self.model.evaluate_sequences(part)[1] for part in split])
        targets, total_weight = self.targets(rows, values), transitions(rows).weight.sum()
        target_split = zip(*(target.split(size) for target in targets), strict=True)
        return [
            Microbatch(part, Targets(*part_targets), total_weight, outputs)
            for part, part_targets in zip(split, target_split, strict=True)
        ]

    def targets(self, rows: dict[str, Tensor], values: Tensor) -> Targets:
        """Returns and advantages of episodes (E, T) with these values (E, T)."""
        config, (_, then, weight) = self.config, transitions(rows)
        has_baseline, is_whole = config.targets == "advantages", config.returns == "episode"
        bootstrap = values[:, 1:] if has_baseline else None
        returns = discounted_return(
            then["reward"], then["terminated"], is_last(then), weight, config.gamma, bootstrap
        )  # fmt: skip
        advantages = returns[:, :1] * weight if is_whole else returns
        if has_baseline:  # of the first row for the return of the whole episode
            advantages = advantages - (values[:, :1] * weight if is_whole else values[:, :-1])
        if config.normalise:
            mean = losses.weighted_mean(advantages, weight)
            advantages = (advantages - mean) / (losses.weighted_std(advantages, weight) + 1e-8)
        return Targets(returns, advantages)

    def loss(self, batch: Microbatch) -> Loss:
        """Policy gradient and the baseline's squared error, averaged over all transitions."""
        config = self.config
        policy, values = batch.outputs or self.model.evaluate_sequences(batch.rows)
        now, _, weight = transitions(batch.rows)

        def mean(x: Tensor) -> Tensor:
            return losses.weighted_mean(x, weight, batch.total_weight)

        log_prob = policy.log_prob(now["action"].flatten(0, 1)).unflatten(0, weight.shape)
        policy_loss = -mean(log_prob * batch.targets.advantages)  # Eq. 13.11 without its factor gamma^t
        entropy = mean(policy.entropy().unflatten(0, weight.shape))
        value_loss = mean((values[:, :-1] - batch.targets.returns).square())
        total = policy_loss - config.entropy_weight * entropy
        if config.targets == "advantages":
            total = total + config.value_weight * value_loss
        return Loss(
            total, {"loss": total, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        )  # fmt: skip
