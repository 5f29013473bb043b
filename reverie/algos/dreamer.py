"""DreamerV3: learn a world model from replay, and a policy from trajectories imagined with it.

Hafner et al. 2023, "Mastering Diverse Domains through World Models". Equation numbers are those of its second version
(2024), details those of its code of 2025: one backward pass through model, policy and value; the value is also trained
on replayed rows, and that gradient reaches the model.

Departures: the learning rate is not 0 at the very first step; discrete policies get the paper's uniform mix, which the
code leaves out; evaluation takes the policy's mode instead of a sample; the image decoder starts at the mean brightness
of the first batch instead of at one half (``image_bias_init``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.algos.dreamer_agent import DreamerAgent
from reverie.algos.dreamer_batch import ImaginationNoise, SequenceBatch, prepare, write_back
from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.dreamer_inspect import DreamerInspection
from reverie.algos.dreamer_state import (
    RENAMED,
    RENAMED_METRICS,
    STORED_LATENTS,
    check_stored_latents,
    with_current_names,
)
from reverie.backend import DEFAULT, Backend, load_module_state, module_state
from reverie.core import registry
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Window
from reverie.core.specs import Specs
from reverie.core.types import Batch, Clock, State, Update, is_last
from reverie.data.rows import transitions
from reverie.functional.returns import imagined_return, td_lambda_return
from reverie.models.latent import Latent, Posterior, Trajectory
from reverie.nets.joint_step import minimise_jointly
from reverie.nets.layers import frozen
from reverie.nets.module_norms import ModuleNorms
from reverie.nets.one_hot import to_dense
from reverie.nets.optim import FlatOptimizer, Loss
from reverie.nets.scaling import NoScale
from reverie.nets.two_hot import ScalarDistribution


class Estimates(NamedTuple):
    """Predictions along imagined trajectories, and the returns that follow from them. No gradient."""

    rewards: Tensor  # (H, N): for the state that each step leads to
    continues: Tensor  # (H + 1, N): discount included
    values: Tensor  # (H + 1, N)
    returns: Tensor  # (H, N)


class Dreamer(DreamerAgent, DreamerInspection):
    """For all observations, and for discrete, multi-discrete, bounded continuous and mixed actions."""

    Config = DreamerConfig
    traits = Traits(
        hooks=("update", "update_world_model", "update_controller"), unbounded_actions=False, microbatches=True,
        priorities=True, bfloat16=True, observes=True,
        renamed_weights={f"model.{old}": f"model.{new}" for old, new in RENAMED.items()},
        renamed_metrics=RENAMED_METRICS,
    )  # fmt: skip

    def __init__(
        self, config: DreamerConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        super().__init__(config, specs, rng, backend)
        return_scale = registry.load("return_scale", config.return_scale.kind)
        self.return_scale = return_scale(config.return_scale).to(backend.device)
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.model_optimizer = optimizer(config.optimizer, self.model.parameters())
        behaviour = [*self.actor.parameters(), *self.critic.value.parameters()]
        self.behaviour_optimizer = optimizer(config.optimizer, behaviour)
        self.use_numpy_engine()
        modules = ("encoder", "rssm", "decoder", "reward", "continuation")
        self.module_norms = {
            "model": ModuleNorms({name: getattr(self.model, name) for name in modules}),
            "behaviour": ModuleNorms({"actor": self.actor, "critic": self.critic.value}),
        }

    @property
    def reads(self) -> dict[str, Read]:
        return dict.fromkeys(self.traits.hooks, Window(self.config.batch_size, self.config.batch_length, context=1))

    # ---------------------------------------------------------------- updates

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of world model, policy and value, on rows (B, T + 1); the first row is context."""
        return self._update(batch, clock, rng, ("model", "behaviour"))

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of the world model alone."""
        return self._update(batch, clock, rng, ("model",))

    def update_controller(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of policy and value alone."""
        return self._update(batch, clock, rng, ("behaviour",))

    def _update(self, batch: Batch, clock: Clock, rng: np.random.Generator, names: tuple[str, ...]) -> Update:
        """One step of the named optimisers on :meth:`loss`."""
        config, sequences = self.config, self.make_sequences(batch, rng, names)
        microbatches = sequences.split(self.backend.microbatch_size(len(sequences.noise)))
        if "model" in names and self.model_optimizer.steps == 0 and config.image_bias_init == "mean":
            self.model.decoder.start_at_mean([microbatch.rows for microbatch in microbatches])
        if "behaviour" in names:
            self._update_return_scale(microbatches)
        optimizers = {name: getattr(self, f"{name}_optimizer") for name in names}
        schedules = {"model": config.learning_rate, "behaviour": config.behaviour_learning_rate or config.learning_rate}
        rates = {name: schedules[name].at(clock) for name in names}
        norms = reduce(or_, (self.module_norms[name] for name in names))
        result = minimise_jointly(optimizers, self.loss, microbatches, rates, config.max_grad_norm, norms)
        self.has_critic |= "behaviour" in names  # a loaded policy has no trained critic until this step
        if "behaviour" in names and self.behaviour_optimizer.steps % config.target_every == 0:
            self.critic.update_target(config.target_rate)
        if "model" not in names:
            return Update(result.metrics)
        latent, params = Latent(result.aux["deter"], result.aux["stoch"]), result.aux["params"]
        if microbatches[0].is_padded:
            params = params[result.aux["weights"] > 0][None]  # valid rows as one sequence (1, R, ...)
        written = write_back(batch, latent, self.model, result.aux["model_error"])
        return Update(result.metrics | self.model.rssm.usage(params), write_back=written)

    def make_sequences(self, batch: Batch, rng: np.random.Generator, names: tuple[str, ...]) -> SequenceBatch:
        """The batch on the device, with the noise that the losses of the named optimisers need."""
        context, rows = prepare(batch, self.model, self.config, self.backend)
        count, length = rows["is_first"].shape
        noise, imagination = self.latent_noise(rng, count, length), None
        if "behaviour" in names:
            imagination = self.imagination_noise(rng, self.config.imagine_steps, count * length)
        return SequenceBatch(context, rows, noise, imagination, trains_model="model" in names)

    @torch.no_grad()
    def _update_return_scale(self, microbatches: Sequence[SequenceBatch]) -> None:
        """Update the return normaliser with the returns of all microbatches, before the first one computes its loss.

        This takes a second pass of observing and imagining. A batch that is not split needs none: :meth:`loss` updates
        the normaliser with the returns it computes anyway.
        """
        if len(microbatches) > 1 and not isinstance(self.return_scale, NoScale):
            returns = [batch.drop_padding(self.imagined_returns(batch)) for batch in microbatches]
            self.return_scale.update(torch.cat(returns, 1))

    # ---------------------------------------------------------------- objective

    def loss(self, batch: SequenceBatch) -> Loss:
        """The whole objective, on B sequences of T rows and on H imagined steps from each of their N = B * T rows."""
        config, losses, aux = self.config, dict[str, Tensor](), dict[str, Tensor]()
        # World model: losses (B, T), Eq. 2 and 3
        with torch.set_grad_enabled(batch.trains_model):
            post = self.model.observe(batch.context, batch.rows, batch.noise)
        if batch.trains_model:
            losses = self.model_losses(post, batch.rows)
            aux = {**post.latent.detach()._asdict(), "params": post.params.detach(), "weights": batch.weights,
                   "model_error": self._weigh(losses).detach()}  # fmt: skip
            losses = {name: loss * batch.weights for name, loss in losses.items()}
        if batch.imagination is None:
            return self._combine(batch, losses, {}, aux)
        # Imagination: features (H + 1, N, F), rewards and returns (H, N), continues and values (H + 1, N), Eq. 5
        imagined, reparameterised_returns = self.imagine_for_policy(post.latent.detach().flatten(), batch.imagination)
        value_dist = self.critic(imagined.features[:-1])
        rewards, continues, values, returns = self.estimate(imagined, value_dist)
        if batch.is_whole:  # for microbatches, _update_return_scale has already done this
            self.return_scale.update(batch.drop_padding(returns))  # Eq. 7
        with torch.no_grad():
            _, scale = self.return_scale()
            advantages = (returns - values[:-1]) / scale
            row_weights = batch.weights.flatten()
            weights = continues.cumprod(0)[:-1] * row_weights
            target_values = self.critic.target_mean(imagined.features[:-1])
        # Policy and value: losses (H, N), Eq. 6 and 5
        assert imagined.outputs is not None
        policy = self.actor.distribution(imagined.outputs)
        log_probs = policy.log_prob(imagined.actions.flatten(0, 1)).view_as(advantages)
        entropy = policy.entropy().view_as(advantages)
        objective = log_probs * advantages
        if reparameterised_returns is not None:
            objective = torch.lerp(objective, reparameterised_returns / scale, self.reparameterised_weight)
        losses["policy"] = -weights * (objective + config.entropy_weight * entropy)
        losses["value"] = weights * self.value_loss(value_dist, returns, target_values)
        # Value on replayed rows: (B, T - 1), bootstrapped with imagined returns
        if config.loss_weights.replay_value:
            bootstrap = returns[0].view(batch.rows["is_first"].shape)
            losses["replay_value"] = self.replay_value_loss(post.latent.features, batch.rows, bootstrap)
        metrics = {
            "entropy": entropy, "advantage_magnitude": advantages.abs(), "imagined_reward": rewards,
            "imagined_continuation": continues, "imagined_value": values, "imagined_return": returns,
        }  # fmt: skip
        metrics = {name: (value * row_weights).mean() for name, value in metrics.items()}
        return self._combine(batch, losses, metrics | {"return_scale": scale}, aux)

    def model_losses(self, post: Posterior, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Losses of the world model per row (B, T)."""
        return self.model.losses(post, rows, self.config.discount, self.config.free_nats)

    def value_loss(self, value_dist: ScalarDistribution, returns: Tensor, target_values: Tensor) -> Tensor:
        """Loss (...) of values against returns, and against the target critic, which regularises them."""
        return_loss, target_loss = value_dist.loss(returns, target_values)
        return return_loss + self.config.target_regulariser * target_loss

    def replay_value_loss(self, features: Tensor, rows: Mapping[str, Tensor], bootstrap: Tensor) -> Tensor:
        """Value loss (B, T - 1) on replayed rows; ``bootstrap`` (B, T) are the returns imagined from each row."""
        now, then, weight = transitions({**rows, "features": features, "bootstrap": bootstrap})
        returns = td_lambda_return(
            then["reward"], then["bootstrap"], then["terminated"], is_last(then), weight, self.config.discount,
            self.config.gae_lambda,
        )  # fmt: skip
        weights: Tensor = weight * now["weight"] if "weight" in rows else weight
        features = now["features"] if self.config.replay_value_gradient else now["features"].detach()
        with torch.no_grad():
            target_values = self.critic.target_mean(features)
        return weights * self.value_loss(self.critic(features), returns, target_values)

    def _weigh(self, losses: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of losses of equal shape."""
        weights = self.config.loss_weights
        return torch.stack([getattr(weights, name) * loss for name, loss in losses.items()]).sum(0)

    def _combine(
        self,
        batch: SequenceBatch,
        losses: Mapping[str, Tensor],
        metrics: Mapping[str, Tensor],
        aux: Mapping[str, Tensor],
    ) -> Loss:
        """Totals and metrics in proportion to the microbatch, so that they add up to those of the batch."""
        means = {name: loss.mean() for name, loss in losses.items()}
        metrics = {f"loss_{name}": mean for name, mean in means.items()} | dict(metrics)
        total = batch.fraction * self._weigh(means)
        return Loss(total, {name: batch.fraction * value.detach() for name, value in metrics.items()}, aux)

    # ---------------------------------------------------------------- imagination

    @property
    def reparameterised_weight(self) -> float:
        weight = self.config.reparameterised_weight
        return float(self.specs.action.kind == "continuous") if weight == "auto" else weight

    def imagine_for_policy(self, latent: Latent, noise: ImaginationNoise) -> tuple[Trajectory, Tensor | None]:
        """Imagined trajectories with the actor's outputs; their returns (H, N) with gradient if the policy needs it."""
        if not self.reparameterised_weight:
            return self.model.imagine(latent, self.sampling_policy(noise.action), noise.latent), None
        with frozen(self.model, self.critic):  # gradients flow through both and train only the actor
            policy = self.reparameterised_policy(noise.action)
            imagined = self.model.imagine_with_gradient(latent, policy, noise.latent)
            reward, continuation = self.model.predict(imagined.features[1:])
            critic = self.critic.target_mean if self.config.bootstrap_from_target else self.critic.mean
            values = critic(imagined.features[1:])
            returns = imagined_return(reward.T, values.T, continuation.T, self.config.gae_lambda)
        return imagined._replace(features=to_dense(imagined.features).detach()), returns.T

    @torch.no_grad()
    def estimate(self, imagined: Trajectory, value_dist: ScalarDistribution) -> Estimates:
        """Rewards, continuation, values and lambda-returns. ``value_dist`` is that of all features but the last."""
        features = imagined.features
        if self.config.bootstrap_from_target:
            values = self.critic.target_mean(features)
        else:
            values = torch.cat([value_dist.mean(), self.critic.mean(features[-1:])])
        rewards, continues = self.model.predict_reward(features[1:]), self.model.predict_continuation(features)
        returns = imagined_return(rewards.T, values[1:].T, continues[1:].T, self.config.gae_lambda).T
        return Estimates(rewards, continues, values, returns)

    @torch.no_grad()
    def imagined_returns(self, batch: SequenceBatch) -> Tensor:
        """The returns (H, N) that :meth:`loss` uses."""
        post = self.model.observe(batch.context, batch.rows, batch.noise)
        assert batch.imagination is not None
        imagined, _ = self.imagine_for_policy(post.latent.flatten(), batch.imagination)
        return self.estimate(imagined, self.critic(imagined.features[:-1])).returns

    # ---------------------------------------------------------------- state

    def state(self) -> State:
        return {
            **self.policy_state(),
            "critic": module_state(self.critic),
            "return_scale": module_state(self.return_scale),
            "model_optimizer": self.model_optimizer.state(),
            "behaviour_optimizer": self.behaviour_optimizer.state(),
            "stored_latents": STORED_LATENTS,
        }

    def load_state(self, state: State) -> None:
        if self.config.model.rssm.latents == "categorical":
            check_stored_latents(state)
        self.load_policy_state(state)
        load_module_state(self.critic, with_current_names(state["critic"]))
        self.has_critic = True
        load_module_state(self.return_scale, state["return_scale"])
        self.model_optimizer.load_state(state["model_optimizer"])
        self.behaviour_optimizer.load_state(state["behaviour_optimizer"])
