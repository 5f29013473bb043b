"""TD-MPC2: learn an implicit world model, Q-functions and a policy from replay, and plan with all of them.

Hansen et al. 2024, "TD-MPC2: Scalable, Robust World Models for Continuous Control". Details are those of the official
code, among them the weights of the losses, which differ from the paper's table.

Departures: sequences are drawn uniformly over rows, and may be cut short by the end of an episode; the official code
draws episodes first, and only whole sequences. Images are shifted in updates only, not when acting.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.agents.policy_prior import PolicyPrior, scaled_entropy
from reverie.algos.tdmpc2_config import TDMPC2Config
from reverie.algos.tdmpc_agent import Networks, TDMPCAgent
from reverie.algos.tdmpc_batch import UnrollBatch, UpdateNoise, make_batch, sample_noise, shift_images
from reverie.algos.tdmpc_inspect import TDMPCInspection
from reverie.backend import DEFAULT, Backend, load_module_state, module_state
from reverie.core import registry
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Transitions
from reverie.core.specs import Specs
from reverie.core.types import Batch, Clock, State, Update
from reverie.functional.horizon import horizon_mean
from reverie.functional.losses import weighted_mean
from reverie.models.latent_mlp import LatentMLP
from reverie.nets.joint_step import minimise_jointly
from reverie.nets.layers import frozen
from reverie.nets.module_norms import ModuleNorms
from reverie.nets.optim import FlatOptimizer, Loss, flatten
from reverie.nets.q_ensemble import QEnsemble
from reverie.nets.two_hot import SymlogTwoHot


class Objective(NamedTuple):
    """What the losses are computed on."""

    batch: UnrollBatch
    noise: UpdateNoise
    trains_model: bool = True
    trains_critics: bool = True


class TDMPC2(TDMPCAgent, TDMPCInspection):
    """For all observations and bounded continuous actions."""

    Config = TDMPC2Config
    traits = Traits(
        hooks=("update", "update_world_model", "update_controller"), actions=("continuous",), unbounded_actions=False,
        observes=True,
    )  # fmt: skip

    model: LatentMLP
    critics: QEnsemble
    policy: PolicyPrior

    def __init__(
        self, config: TDMPC2Config, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        super().__init__(config, specs, rng, backend)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.target_flat = flatten(list(self.target_critics.parameters()))
        scale = registry.load("return_scale", config.return_scale.kind)
        self.return_scale = scale(config.return_scale).to(backend.device)
        encoder = list(self.model.encoder.parameters())
        others = [weight for name, weight in self.model.named_parameters() if not name.startswith("encoder.")]
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.optimizers = {
            "encoder": optimizer(config.optimizer, encoder),
            "model": optimizer(config.optimizer, others),
            "critics": optimizer(config.optimizer, self.critics.parameters()),
        }
        policy_optimizer: type[FlatOptimizer] = registry.load("optimizer", config.policy_optimizer.kind)
        self.policy_optimizer = policy_optimizer(config.policy_optimizer, self.policy.parameters())
        heads = {"dynamics": self.model.dynamics, "reward": self.model.reward_head}
        self.module_norms = ModuleNorms({"encoder": self.model.encoder, **heads})

    def make_networks(self) -> Networks:
        config = self.config
        model = registry.load("model", config.model.kind)(config.model, self.specs, config.episodic)
        sizes = model.config
        critics = QEnsemble(config.num_critics, model.inputs, sizes.units, sizes.bins, config.dropout)
        return Networks(model, critics, PolicyPrior(sizes.latent, sizes.units, self.specs.action.shape))

    def q_values(self, latent: Tensor, action: Tensor, members: Sequence[int] | None = None) -> Tensor:
        return SymlogTwoHot(self.critics(torch.cat([latent, action], -1), members), self.model.bins).mean()

    def final_values(self, latent: Tensor, action: Tensor, members: Sequence[int]) -> Tensor:
        return self.q_values(latent, action, members).mean(0)

    @property
    def reads(self) -> dict[str, Read]:
        return dict.fromkeys(self.traits.hooks, Transitions(self.config.batch_size, self.config.train_horizon))

    # ---------------------------------------------------------------- updates

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of world model and Q-functions, then one of the policy, on rows (B, H + 1)."""
        return self._update(batch, clock, rng, trains_model=True, trains_controller=True)

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of encoder, dynamics, reward and termination alone."""
        return self._update(batch, clock, rng, trains_model=True, trains_controller=False)

    def update_controller(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of Q-functions and policy alone, on latents of the fixed model."""
        return self._update(batch, clock, rng, trains_model=False, trains_controller=True)

    def _update(
        self, batch: Batch, clock: Clock, rng: np.random.Generator, trains_model: bool, trains_controller: bool
    ) -> Update:
        config = self.config
        objective = self.make_objective(batch, rng)._replace(
            trains_model=trains_model, trains_critics=trains_controller
        )
        names = ("encoder", "model") * trains_model + ("critics",) * trains_controller
        rate = config.learning_rate.at(clock)
        rates = dict.fromkeys(names, rate) | {"encoder": rate * config.encoder_rate_factor}
        result = minimise_jointly(
            {name: self.optimizers[name] for name in names}, self.model_loss, [objective], rates,
            config.max_grad_norm, self.module_norms if trains_model else None, joint_norm=True,
        )  # fmt: skip
        if not trains_controller:
            return Update(result.metrics)
        latents = result.aux["latents"]
        policy = self.policy_optimizer.minimise(
            lambda noise: self.policy_loss(latents, objective.batch, noise), [objective.noise], rate,
            config.max_grad_norm,
        )  # fmt: skip
        # Both vectors hold parameters in the same order: target_critics is a copy of critics.
        self.target_flat.lerp_(self.optimizers["critics"].flat.data, config.target_rate)
        return Update(result.metrics | policy.metrics | {"grad_norm_policy": policy.grad_norm})

    def make_objective(self, batch: Batch, rng: np.random.Generator) -> Objective:
        """The batch on the device, with all that the losses draw."""
        sequences = make_batch(batch, self.backend)
        obs = shift_images(sequences.obs, self.config.image_shift, rng)
        noise = sample_noise(rng, self.critics, sequences.actions, self.backend)
        return Objective(sequences._replace(obs=obs), noise)

    # ---------------------------------------------------------------- objective

    def model_loss(self, objective: Objective) -> Loss:
        """The joint objective of world model and Q-functions, over H unrolled steps."""
        batch, noise, config = objective.batch, objective.noise, self.config
        weight = batch.weight * batch.importance
        with torch.no_grad():
            next_latents = self.model.encode({key: x[1:] for key, x in batch.obs.items()})  # (H, B, L)
        with torch.set_grad_enabled(torch.is_grad_enabled() and objective.trains_model):
            latents = self.unroll(batch)  # (H + 1, B, L)
        losses = dict[str, Tensor]()
        if objective.trains_model:
            errors = (latents[1:] - next_latents).square().mean(-1)
            losses["consistency"] = horizon_mean(errors, weight, config.decay)
            (reward_losses,) = self.model.reward(latents[:-1], batch.actions).loss(batch.rewards)
            losses["reward"] = horizon_mean(reward_losses, weight, config.decay)
            if self.model.termination_head is not None:
                logits = self.model.termination_head(latents[1:]).squeeze(-1)
                errors = F.binary_cross_entropy_with_logits(logits, batch.terminated, reduction="none")
                losses["termination"] = weighted_mean(errors, weight)
        metrics = dict[str, Tensor]()
        if objective.trains_critics:
            targets = self.td_targets(next_latents, batch, noise)  # (H, B)
            pairs = torch.cat([latents[:-1], batch.actions], -1).flatten(0, 1)
            q_values = SymlogTwoHot(self.critics(pairs, dropped=noise.value_dropped), self.model.bins)
            (value_losses,) = q_values.loss(targets.flatten().expand(config.num_critics, -1))  # (Q, H * B)
            losses["value"] = horizon_mean(value_losses.mean(0).view_as(targets), weight, config.decay)
            metrics["value"] = weighted_mean(targets, batch.weight)
        total = torch.stack([getattr(config.loss_weights, name) * loss for name, loss in losses.items()]).sum()
        named = {f"loss_{name}": loss for name, loss in losses.items()} | {"loss": total}
        return Loss(total, named | metrics, {"latents": latents})

    def unroll(self, batch: UnrollBatch) -> Tensor:
        """The latent of the first row, and those that the model predicts after each action: (H + 1, B, L)."""
        latents = [self.model.encode({key: x[0] for key, x in batch.obs.items()})]
        for actions in batch.actions:
            latents.append(self.model.next(latents[-1], actions))
        return torch.stack(latents)

    @torch.no_grad()
    def td_targets(self, next_latents: Tensor, batch: UnrollBatch, noise: UpdateNoise) -> Tensor:
        """Rewards plus the discounted minimum of two target Q-functions for the policy's actions: (H, B)."""
        latents = next_latents.flatten(0, 1)
        actions = self.policy(latents).rsample(noise.target_actions.flatten(0, 1))
        logits = self.target_critics(torch.cat([latents, actions], -1), noise.target_pair)
        values = SymlogTwoHot(logits, self.model.bins).mean().amin(0).view_as(batch.rewards)
        return batch.rewards + self.gamma * (1 - batch.terminated) * values

    def policy_loss(self, latents: Tensor, batch: UnrollBatch, noise: UpdateNoise) -> Loss:
        """Minus the scaled values of the policy's actions and its entropy, on H + 1 latents (H + 1, B, L)."""
        config, flat = self.config, latents.flatten(0, 1)
        drawn = noise.policy_actions.flatten(0, 1)
        policy = self.policy(flat)
        with frozen(self.critics):
            logits = self.critics(torch.cat([flat, policy.rsample(drawn)], -1), noise.policy_pair, noise.policy_dropped)
            values = SymlogTwoHot(logits, self.model.bins).mean().mean(0).view(latents.shape[:2])
        entropies = scaled_entropy(policy.log_std, drawn).view_as(values)
        if torch.is_grad_enabled():
            self.return_scale.update(values[0])
        _, scale = self.return_scale()
        weight = batch.reached
        loss = horizon_mean(-(values / scale + config.entropy_weight * entropies), weight, config.decay)
        std = policy.log_std.detach().exp().mean(-1).view_as(values)
        metrics = {
            "policy_loss": loss, "policy_value": weighted_mean(values.detach(), weight),
            "policy_std": weighted_mean(std, weight), "return_scale": scale.clone(),
        }  # fmt: skip
        return Loss(loss, metrics)

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The losses of world model and Q-functions on held-out data."""
        loss = self.model_loss(Objective(*self.make_objective(batch, rng)[:2]))
        return {name: float(value) for name, value in loss.metrics.items()}

    # ---------------------------------------------------------------- state

    def state(self) -> State:
        optimizers = {f"{name}_optimizer": optimizer.state() for name, optimizer in self.optimizers.items()}
        return {
            **self.policy_state(), **optimizers, "policy_optimizer": self.policy_optimizer.state(),
            "targets": module_state(self.target_critics), "return_scale": module_state(self.return_scale),
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        load_module_state(self.target_critics, state["targets"])
        load_module_state(self.return_scale, state["return_scale"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state(state[f"{name}_optimizer"])
        self.policy_optimizer.load_state(state["policy_optimizer"])
