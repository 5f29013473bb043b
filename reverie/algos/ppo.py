"""Proximal policy optimisation.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms". Equation numbers are those of that paper.

Departures from common implementations:

* Acting computes only the action. The log-probabilities and values of the whole rollout are computed in one pass when
  the update starts: the weights have not changed since, so the numbers are the same, and it is cheaper.
* The final row of an episode has weight 0, because its action was never executed. Its value is what a truncated episode
  bootstraps from.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from reverie.agents.actor_critic import ActorCriticAgent
from reverie.agents.numpy_ppo import NumpyPPO
from reverie.agents.ppo_engine import Minibatch, PPOEngine, StepSettings
from reverie.agents.recurrent_actor_critic import make_actor_critic
from reverie.backend import DEFAULT, Backend, seeded
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Rollout
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.traits import MirroredInNumpy
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, Update, is_last
from reverie.data.rows import transitions
from reverie.functional import losses
from reverie.functional.returns import gae
from reverie.nets.backend_module import to_backend
from reverie.nets.encoders import AutoNetwork
from reverie.nets.heads import StateDependentHead
from reverie.nets.optim import Adam, Loss, Result


class PPOConfig(ComponentConfig):
    """Proximal policy optimisation."""

    built_once = frozenset({"shared_trunk", "orthogonal_init", "initial_log_std", "state_dependent_noise"})

    kind: str = "ppo"
    learning_rate: Rate = constant(3e-4)
    """Step size of the optimiser."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount: weight of a reward one step later."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Lambda of the advantage estimates. 0: one-step TD advantages; 1: Monte Carlo returns."""
    clip: Rate = constant(0.2)
    """How far the probability ratio may move from 1 before its gradient is 0."""
    value_clip: float | None = Field(None, gt=0)
    """Clip value predictions to this distance from the old ones; empty: no clipping."""
    epochs: int = Field(10, ge=1)
    """Passes over each rollout."""
    batch_size: int | float = Field(64, gt=0)
    """Rows per minibatch; a float up to 1.0 is a fraction of the rollout."""
    normalise_advantage: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 in each minibatch."""
    entropy_weight: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the value loss, the squared error without a factor 1/2."""
    max_grad_norm: float | None = Field(0.5, gt=0)
    """Largest norm of the gradient; empty: no clipping."""
    target_kl: float | None = Field(None, gt=0)
    """Stop learning from a rollout at the first minibatch on which the KL divergence exceeds 1.5 times this."""
    shared_trunk: bool = False
    """Whether policy and value share all but their last layers."""
    network: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """Network from observations to features. Policy and value have one each unless ``shared_trunk`` is set."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config()
    """Update rule of policy and value."""
    orthogonal_init: bool = True
    """Initialise weights orthogonally; otherwise torch's defaults."""
    initial_log_std: float = 0.0
    """Logarithm of the initial standard deviation of continuous actions."""
    state_dependent_noise: bool = False
    """State-dependent exploration noise (gSDE) for continuous actions."""
    noise_steps: int = Field(-1, ge=-1)
    """Steps until that noise is drawn anew; -1 draws it once per rollout."""

    @field_validator("batch_size")
    @classmethod
    def _rows_or_fraction(cls, value: int | float) -> int | float:
        """A float above 1 (1e2) can only mean rows and becomes an int."""
        if isinstance(value, int) or value <= 1:
            return value
        if not value.is_integer():
            raise ValueError("must be a whole number of rows, or a fraction of the rollout up to 1.0")
        return int(value)


class PPO(ActorCriticAgent, MirroredInNumpy, in_numpy=("loss", "minibatches", "gradient_step")):
    """For every observation and action kind of :mod:`reverie.core.specs`."""

    Config = PPOConfig
    traits = Traits(
        actions=("discrete", "continuous", "multi_discrete", "multi_binary"), on_policy=True, recurrent=True,
        microbatches=True, numpy_engine=True,
    )  # fmt: skip

    def __init__(self, config: PPOConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.reads: dict[str, Read] = {"update": Rollout()}
        with seeded(rng):
            model = make_actor_critic(
                config.network, specs, config.shared_trunk, config.orthogonal_init,
                config.state_dependent_noise, config.initial_log_std,
            )  # fmt: skip
        self.model = to_backend(model, backend)
        self.optimizer = registry.load("optimizer", config.optimizer.kind)(config.optimizer, self.model.parameters())
        self.model.use_numpy_engine()
        self.numpy_engine: NumpyPPO | None = None
        if self.model.numpy is not None and self.traits.numpy_engine:
            self.numpy_engine = NumpyPPO(self.model, self.model.numpy, self.optimizer)

    @property
    def engine(self) -> PPOEngine:
        """What computes gradient steps. The torch form is this class."""
        return self.numpy_engine or self

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        head, hidden = self.model.action_head, self.model.initial_carry(num_envs)
        if not isinstance(head, StateDependentHead):
            return hidden
        maps = np.zeros((num_envs, *head.log_std.shape), np.float32)
        return {**hidden, "maps": maps, "age": np.array(0), "updates": np.array(-1)}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        head, noise = self.model.action_head, None
        if mode is Mode.COLLECT:
            if isinstance(head, StateDependentHead):
                return self._explore(head, now, self._refresh_noise(head, carry, clock, rng))
            noise = head.draw_noise(rng, len(now["is_first"]))
        outputs, carry, extras = self.model.act_outputs(now, carry)
        return head.choose(outputs, noise), carry, extras

    @torch.inference_mode()
    def _explore(self, head: StateDependentHead, now: Row, carry: Carry) -> tuple[Array, Carry, Row]:
        """Act with the noise maps of the carry."""
        features, carry, extras = self.model.actor_features(now, carry)
        maps = self.backend.to_tensor(carry["maps"])
        action = head.explore(features, maps)
        return action.cpu().numpy(), carry, extras

    def _refresh_noise(self, head: StateDependentHead, carry: Carry, clock: Clock, rng: np.random.Generator) -> Carry:
        """New noise maps for every rollout, and after ``noise_steps`` within it."""
        age = int(carry["age"])
        is_old = 0 < self.config.noise_steps <= age
        if is_old or int(carry["updates"]) != clock.updates:
            maps = head.draw_map(rng, len(carry["maps"]))
            return {**carry, "maps": maps, "age": np.array(1), "updates": np.array(clock.updates)}
        return {**carry, "age": np.array(age + 1)}

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """All epochs over one rollout (N, T + 1)."""
        settings = self._step_settings(clock)
        rollout = self.evaluate_rollout(self.backend.to_tensors(batch))
        taken: list[Result] = []
        for _ in range(self.config.epochs):
            rows = self._shuffle(rollout, rng)
            epoch = self._run_epoch(rows, settings)
            taken += [result for result in epoch if not result.is_skipped]
            if epoch[-1].is_skipped:
                break
        metrics = self._loss_metrics(rollout, taken or epoch) | self._policy_change(rows, epoch, settings.clip)
        metrics["explained_variance"] = losses.explained_variance(
            rollout["value"], rollout["target"], rollout["weights"]
        )  # fmt: skip
        if taken:  # target_kl may refuse the very first minibatch
            metrics["grad_norm"] = _mean([result.grad_norm for result in taken])
            metrics |= self.optimizer.grad_norms(self.model.modules_by_role(), taken[-1].grad_norm)
        metrics["learning_rate"] = settings.learning_rate
        return Update(metrics, len(taken))

    @torch.no_grad()
    def evaluate_rollout(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Flat rows (N * T, ...) with the old log-probabilities and values, advantages, value targets and weights."""
        now, then, weight = transitions(batch)
        policy, values = self.model.evaluate_sequences(batch)
        advantage = gae(  # Eq. 11 and 12
            then["reward"], values[:, :-1], values[:, 1:], then["terminated"], is_last(then), weight,
            self.config.gamma, self.config.gae_lambda,
        )  # fmt: skip
        rows = {**self.model.flat_inputs(batch), "action": now["action"].flatten(0, 1)}
        rows["log_prob"], rows["entropy"] = policy.log_prob(rows["action"]), policy.entropy()
        rows["value"] = values[:, :-1].flatten()
        rows["advantage"] = advantage.flatten()
        rows["target"] = rows["advantage"] + rows["value"]
        rows["weights"] = weight.flatten()
        return rows

    def _run_epoch(self, rows: dict[str, Tensor], settings: StepSettings) -> list[Result]:
        """A gradient step on each minibatch. Stops at the first one that ``target_kl`` refuses."""
        results: list[Result] = []
        for minibatch in self.engine.minibatches(rows, self._batch_size(rows)):
            results.append(self.engine.gradient_step(minibatch, settings))
            if results[-1].is_skipped:
                break
        return results

    def loss(self, minibatch: Minibatch, settings: StepSettings) -> Loss:
        """The clipped objective on rows (R, ...), with the sign of a loss. Eq. 9."""
        policy, value = self.model(minibatch)
        weights = minibatch["weights"]
        log_ratio = policy.log_prob(minibatch["action"]) - minibatch["log_prob"]
        policy_losses = losses.clipped_policy_loss(log_ratio, minibatch["advantage"], settings.clip)  # Eq. 7
        value_losses = losses.clipped_value_loss(value, minibatch["value"], minibatch["target"], settings.value_clip)
        metrics = {"policy_loss": torch.dot(policy_losses, weights), "value_loss": torch.dot(value_losses, weights)}
        total = metrics["policy_loss"] + settings.value_weight * metrics["value_loss"]
        if settings.entropy_weight:
            total = total - settings.entropy_weight * torch.dot(policy.entropy(), weights)
        if settings.target_kl is not None:
            metrics["kl"] = torch.dot(losses.approximate_kl(log_ratio.detach()), weights)
        return Loss(total, metrics, {"log_ratio": log_ratio})

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        return self.model.split(rows, size)

    def gradient_step(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        size = self.model.nearest_batch_size(minibatch, self.backend.microbatch_size(len(minibatch["weights"])))
        return self.optimizer.minimise(
            partial(self.loss, settings=settings), self.model.split(minibatch, size),
            settings.learning_rate, settings.max_grad_norm, settings.accepts,
        )  # fmt: skip

    def _shuffle(self, rollout: dict[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """The rows of one epoch: in random order, ``weights`` scaled to a sum of 1 per minibatch."""
        rows, size = self.model.shuffle(rollout, rng), self._batch_size(rollout)
        rows["weights"] = losses.minibatch_weights(rows["weights"], size)
        if self.config.normalise_advantage:
            rows["advantage"] = losses.normalise_minibatches(rows["advantage"], rows["weights"], size)
        return rows

    def _batch_size(self, rows: dict[str, Any]) -> int:
        size = self.config.batch_size
        wanted = max(1, round(size * len(rows["weights"]))) if isinstance(size, float) else size
        return self.model.nearest_batch_size(rows, wanted)

    def _step_settings(self, clock: Clock) -> StepSettings:
        config = self.config
        return StepSettings(
            config.learning_rate.at(clock), config.max_grad_norm, config.target_kl, config.clip.at(clock),
            config.value_clip, config.value_weight, config.entropy_weight,
        )  # fmt: skip

    def _loss_metrics(self, rollout: dict[str, Tensor], results: list[Result]) -> dict[str, Any]:
        """Means over minibatches.

        ``entropy`` is that of the policy that collected the rollout, also in ``loss``. The loss that is minimised has
        the entropy of the policy at each step.
        """
        config = self.config
        metrics = {name: _mean([result.metrics[name] for result in results]) for name in ("policy_loss", "value_loss")}
        metrics["entropy"] = losses.weighted_mean(rollout["entropy"], rollout["weights"])
        metrics["loss"] = metrics["policy_loss"] + config.value_weight * metrics["value_loss"]
        metrics["loss"] = metrics["loss"] - config.entropy_weight * metrics["entropy"]
        return metrics

    def _policy_change(self, rows: dict[str, Tensor], epoch: list[Result], clip: float) -> dict[str, Tensor]:
        """How far the policy has moved: means over the minibatches of the last epoch."""
        log_ratio = torch.cat([result.aux["log_ratio"] for result in epoch])
        weights = rows["weights"][: len(log_ratio)] / len(epoch)
        kl, is_clipped = losses.approximate_kl(log_ratio), losses.is_clipped(log_ratio, clip)
        return {"kl": torch.dot(kl, weights), "clip_fraction": torch.dot(is_clipped, weights)}


def _mean(values: list[Any]) -> Any:
    """The mean of a metric over gradient steps: tensors, or the numpy engine's numbers."""
    return torch.stack(values).mean() if isinstance(values[0], Tensor) else np.mean(values)
