"""Proximal policy optimisation: Schulman et al. 2017, "Proximal Policy Optimization Algorithms".

Departures from common implementations:

* Acting computes nothing but the action. Log-probabilities and values of the whole rollout are worked out in one
  pass when the update starts; the weights have not changed since, so they are the same numbers, and cheaper.
* The last row of an episode carries weight 0: its action was never carried out. Its value is what a truncated
  episode bootstraps from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from reverie import backend
from reverie.agents.actor_critic import ActorCriticMemory, NumpyActorCritic
from reverie.agents.recurrent_actor_critic import make_actor_critic
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Rollout
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, Update, is_last
from reverie.data.rows import transitions
from reverie.functional import losses
from reverie.functional.gradients import clipped_policy_gradient, clipped_value_gradient
from reverie.functional.returns import gae
from reverie.nets.encoders import AutoNetwork
from reverie.nets.heads import StateDependentHead
from reverie.nets.numpy.mlp import quietly
from reverie.nets.optim import Adam


class PPOConfig(ComponentConfig):
    """Proximal policy optimisation."""

    built_once = frozenset({"shared_trunk", "orthogonal_init", "initial_log_std", "state_dependent_noise"})

    kind: str = "ppo"
    learning_rate: Rate = constant(3e-4)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: how much a reward one step later is worth."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Mix of advantage estimates: 0 trusts the value function, 1 the returns."""
    clip: Rate = constant(0.2)
    """How far the probability ratio may move before its gradient is cut."""
    value_clip: float | None = Field(None, gt=0)
    """Cut value predictions to this distance from their old ones; empty does not."""
    epochs: int = Field(10, ge=1)
    """Passes over each rollout."""
    batch_size: int | float = Field(64, gt=0)
    """Rows per minibatch; a float up to 1.0 is a fraction of the rollout."""
    normalise_advantage: bool = True
    """Bring advantages to mean 0 and deviation 1 in each minibatch."""
    entropy_weight: float = Field(0.0, ge=0)
    """Reward for randomness of the policy."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the value loss."""
    max_grad_norm: float | None = Field(0.5, gt=0)
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = Field(None, gt=0)
    """Stop learning from a rollout before the minibatch on which the policy has moved 1.5 times this far."""
    shared_trunk: bool = False
    """Whether policy and value share the network up to their last layers."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The trunk."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config()
    """The optimiser."""
    orthogonal_init: bool = True
    """Orthogonal initial weights; otherwise torch's defaults."""
    initial_log_std: float = 0.0
    """Logarithm of the initial deviation of continuous actions."""
    state_dependent_noise: bool = False
    """Smooth exploration (gSDE) for continuous actions."""
    noise_steps: int = Field(-1, ge=-1)
    """Steps for which that noise keeps its direction; -1 for a whole rollout."""

    @field_validator("batch_size")
    @classmethod
    def _rows_or_fraction(cls, value: int | float) -> int | float:
        """Above 1 a float can only mean rows (1e2), so it becomes the whole number that it must be."""
        if isinstance(value, int) or value <= 1:
            return value
        if not value.is_integer():
            raise ValueError("must be a whole number of rows, or a fraction of the rollout up to 1.0")
        return int(value)


class Step(NamedTuple):
    """Metrics of one minibatch."""

    policy_loss: Any
    value_loss: Any
    grad_norm: Any
    """None if no gradient step was taken, because the policy had moved too far."""
    log_ratio: Any


class PolicyMovedTooFar(Exception):
    """Keeps the optimiser from a step on a minibatch that is farther from the old policy than ``target_kl`` allows."""


STEP_METRICS = ("policy_loss", "value_loss", "grad_norm")


class PPO(ActorCriticMemory):
    """An agent for every observation and action kind of :mod:`reverie.core.specs`."""

    Config = PPOConfig
    traits = Traits(
        actions=("discrete", "continuous", "multi_discrete", "multi_binary"), on_policy=True, recurrent=True,
        microbatches=True,
    )  # fmt: skip

    def __init__(self, config: PPOConfig, specs: Specs, rng: np.random.Generator) -> None:
        self.config = config
        self.specs = specs
        self.reads: dict[str, Read] = {"update": Rollout()}
        with backend.seeded(rng):
            model = make_actor_critic(
                config.network, specs, config.shared_trunk, config.orthogonal_init,
                config.state_dependent_noise, config.initial_log_std,
            )  # fmt: skip
        self.model = model.to(backend.device())
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.model.parameters())
        self.model.prepare_numpy()

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        head, memory = self.model.action_head, self.model.initial_carry(num_envs)
        if not isinstance(head, StateDependentHead):
            return memory
        maps = np.zeros((num_envs, *head.log_std.shape), np.float32)
        return {**memory, "maps": maps, "age": np.array(0), "updates": np.array(-1)}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        head = self.model.action_head
        explores = mode is Mode.COLLECT
        if explores and isinstance(head, StateDependentHead):
            return self._act_smoothly(now, self._refresh_noise(carry, clock, rng))
        noise = head.draw_noise(rng, len(now["is_first"])) if explores else None
        outputs, carry, extras = self.model.answer(now, carry)
        return head.choose(outputs, noise), carry, extras

    @torch.inference_mode()
    def _act_smoothly(self, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        features, carry, extras = self.model.actor_features(now, carry)
        maps = torch.as_tensor(carry["maps"], device=backend.device())
        action = self.model.action_head.explore(features, maps)
        return action.cpu().numpy(), carry, extras

    def _refresh_noise(self, carry: Carry, clock: Clock, rng: np.random.Generator) -> Carry:
        """New exploration maps for every rollout, and after ``noise_steps`` within it."""
        age = int(carry["age"])
        stale = 0 < self.config.noise_steps <= age
        if stale or int(carry["updates"]) != clock.updates:
            maps = self.model.action_head.draw_map(rng, len(carry["maps"]))
            return {**carry, "maps": maps, "age": np.array(1), "updates": np.array(clock.updates)}
        return {**carry, "age": np.array(age + 1)}

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """All epochs over one rollout (N, T + 1)."""
        config = self.config
        data = self._prepare(backend.to_tensors(batch))
        steps: list[Step] = []
        for _ in range(config.epochs):
            rows = self._shuffle(data, rng)
            epoch = self._learn(rows, clock)
            steps += [step for step in epoch if step.grad_norm is not None]
            if epoch[-1].grad_norm is None:
                break
        log_ratio = _join([step.log_ratio for step in epoch])
        share = rows["share"][: len(log_ratio)] / len(epoch)
        metrics = {name: _mean([getattr(step, name) for step in steps]) for name in STEP_METRICS}
        metrics["entropy"] = losses.weighted_mean(data["entropy"], data["weight"])
        metrics["loss"] = metrics["policy_loss"] + config.value_weight * metrics["value_loss"]
        metrics["loss"] = metrics["loss"] - config.entropy_weight * metrics["entropy"]
        metrics["kl"] = torch.dot(losses.approximate_kl(log_ratio), share)
        metrics["clip_fraction"] = torch.dot(losses.is_clipped(log_ratio, config.clip.at(clock)), share)
        metrics["explained_variance"] = losses.explained_variance(data["value"], data["target"], data["weight"])
        metrics |= self.optimizer.norms_by_part(self.model.parts(), steps[-1].grad_norm)
        metrics["learning_rate"] = config.learning_rate.at(clock)
        return Update(metrics, len(steps))

    @torch.no_grad()
    def _prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows (N * T) with what the losses need: old log-probability, old value, advantage, target, weight."""
        now, then, weight = transitions(batch)
        policy, values = self.model.unroll(batch)
        advantage = gae(
            then["reward"], values[:, :-1], values[:, 1:], then["terminated"], is_last(then), weight,
            self.config.gamma, self.config.gae_lambda,
        )  # fmt: skip
        rows = {**self.model.inputs(batch), "action": now["action"].flatten(0, 1)}
        rows["log_prob"], rows["entropy"] = policy.log_prob(rows["action"]), policy.entropy()
        rows["value"] = values[:, :-1].flatten()
        rows["advantage"] = advantage.flatten()
        rows["target"] = rows["advantage"] + rows["value"]
        rows["weight"] = weight.flatten()
        return rows

    def _shuffle(self, data: dict[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """The rows of one epoch in random order; what can be done for all minibatches at once is done here."""
        rows, size = self.model.shuffle(data, rng), self._batch_size(data)
        rows["share"] = losses.batch_shares(rows["weight"], size)
        if self.config.normalise_advantage:
            rows["advantage"] = losses.normalise_batches(rows["advantage"], rows["share"], size)
        return rows

    def _batch_size(self, rows: dict[str, Any]) -> int:
        size = self.config.batch_size
        wanted = max(1, round(size * len(rows["weight"]))) if isinstance(size, float) else size
        return self.model.batch_rows(rows, wanted)

    @quietly
    def _learn(self, rows: dict[str, Tensor], clock: Clock) -> list[Step]:
        """A gradient step on each minibatch of an epoch; the last one is without, if the policy has moved too far."""
        model = self.model.numpy
        if model is None:
            minibatches = self.model.cut(rows, self._batch_size(rows))
            return _until_too_far(self._step(part, clock) for part in minibatches)
        arrays = {key: value.numpy() for key, value in rows.items()}
        arrays["input"] = model.inputs(arrays)
        minibatches = self.model.cut(arrays, self._batch_size(arrays))
        return _until_too_far(self._numpy_step(model, part, clock) for part in minibatches)

    def _step(self, rows: dict[str, Tensor], clock: Clock) -> Step:
        """One gradient step on one minibatch."""
        told: list[tuple[Tensor, Tensor, Tensor]] = []
        parts = self._losses(rows, clock, told)
        norm: Tensor | None = None
        with suppress(PolicyMovedTooFar):
            norm = self.optimizer.step(parts, self.config.learning_rate.at(clock), self.config.max_grad_norm)
        policy_losses, value_losses, log_ratios = zip(*told, strict=True)
        return Step(sum(policy_losses), sum(value_losses), norm, torch.cat(log_ratios))

    def _losses(self, rows: dict[str, Tensor], clock: Clock, told: list[Any]) -> Iterator[Tensor]:
        """The minibatch's loss, in as many parts as the backend wants; what each has to tell is added to ``told``."""
        config = self.config
        for part in self.model.cut(rows, self.model.batch_rows(rows, backend.part_size(len(rows["weight"])))):
            policy, value = self.model(part)
            log_ratio = policy.log_prob(part["action"]) - part["log_prob"]
            surrogate = losses.clipped_policy_loss(log_ratio, part["advantage"], config.clip.at(clock))
            errors = losses.clipped_value_loss(value, part["value"], part["target"], config.value_clip)
            policy_loss, value_loss = torch.dot(surrogate, part["share"]), torch.dot(errors, part["share"])
            loss = policy_loss + config.value_weight * value_loss
            if config.entropy_weight:
                loss = loss - config.entropy_weight * torch.dot(policy.entropy(), part["share"])
            told.append((policy_loss.detach(), value_loss.detach(), log_ratio.detach()))
            if self._is_too_far(torch.cat([log_ratio for *_, log_ratio in told]), rows["share"]):
                raise PolicyMovedTooFar
            yield loss

    def _is_too_far(self, log_ratio: Any, share: Any) -> bool:
        """Whether these first rows of a minibatch alone exceed ``target_kl``; none of them can make up for another."""
        if self.config.target_kl is None:
            return False
        each = losses.approximate_kl(torch.as_tensor(log_ratio))
        return float(torch.dot(each, torch.as_tensor(share)[: len(each)])) > 1.5 * self.config.target_kl

    def _numpy_step(self, model: NumpyActorCritic, rows: dict[str, Array], clock: Clock) -> Step:
        """The same step with the gradients written out."""
        config, share = self.config, rows["share"]
        policy, value, kept = model.forward(rows["input"], rows["action"])
        log_ratio = policy.log_prob - rows["log_prob"]
        surrogate, policy_slope = clipped_policy_gradient(log_ratio, rows["advantage"], config.clip.at(clock))
        errors, value_slope = clipped_value_gradient(value, rows["value"], rows["target"], config.value_clip)
        if self._is_too_far(log_ratio, share):
            return Step(surrogate @ share, errors @ share, None, log_ratio)
        entropy_slope = -config.entropy_weight * share if config.entropy_weight else None
        by_output = policy.backward(policy_slope * share, entropy_slope)
        model.backward(by_output, value_slope * (config.value_weight * share), kept)
        norm = self.optimizer.apply(config.learning_rate.at(clock), config.max_grad_norm)
        return Step(surrogate @ share, errors @ share, norm, log_ratio)


def _until_too_far(steps: Iterable[Step]) -> list[Step]:
    """Steps up to the first one that was not taken."""
    made: list[Step] = []
    for step in steps:
        made.append(step)
        if step.grad_norm is None:
            break
    return made


def _join(parts: Sequence[Any]) -> Tensor:
    return torch.cat(parts) if isinstance(parts[0], Tensor) else torch.from_numpy(np.concatenate(parts))


def _mean(values: Sequence[Any]) -> Any:
    return torch.stack(values).mean() if isinstance(values[0], Tensor) else np.mean(values)
