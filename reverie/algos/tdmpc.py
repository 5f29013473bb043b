"""TD-MPC: learn an implicit world model (TOLD), two Q-functions and a policy from replay, and plan with all of them.

Hansen et al. 2022, "Temporal Difference Learning for Model Predictive Control". Details are those of the official code.
What it has and TD-MPC2 has not: latents without normalisation against those of a target encoder, squared errors, two
Q-functions whose smaller value counts everywhere, fixed noise on the policy's actions, prioritised replay, and plans
that get longer during training.

Departures: values do not bootstrap through termination, and a sequence may be cut short by the end of an episode.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.agents.noisy_policy import NoisyPolicy
from reverie.algos.tdmpc_agent import Networks, TDMPCAgent
from reverie.algos.tdmpc_batch import UnrollBatch, make_batch, shift_images
from reverie.algos.tdmpc_config import TDMPCConfig
from reverie.algos.tdmpc_inspect import TDMPCInspection
from reverie.backend import DEFAULT, Backend, load_module_state, module_state
from reverie.core import registry
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Transitions
from reverie.core.specs import Specs
from reverie.core.types import Batch, Clock, State, Update, WriteBack, random_array
from reverie.functional.losses import weighted_mean
from reverie.models.told import TOLD
from reverie.nets.joint_step import minimise_jointly
from reverie.nets.layers import frozen
from reverie.nets.module_norms import ModuleNorms
from reverie.nets.optim import FlatOptimizer, Loss, flatten
from reverie.nets.twin_values import TwinValues


class Objective(NamedTuple):
    """What the losses are computed on."""

    batch: UnrollBatch
    target_noise: Tensor  # (H, B, W)
    policy_noise: Tensor  # (H + 1, B, W)
    trains_model: bool = True
    trains_critics: bool = True


class TDMPC(TDMPCAgent, TDMPCInspection):
    """For all observations and bounded continuous actions."""

    Config = TDMPCConfig
    traits = Traits(
        hooks=("update", "update_world_model", "update_controller"), actions=("continuous",), unbounded_actions=False,
        priorities=True, observes=True,
    )  # fmt: skip
    model: TOLD
    critics: TwinValues
    policy: NoisyPolicy

    def __init__(self, config: TDMPCConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        super().__init__(config, specs, rng, backend)
        self.target_encoder, self.target_critics = (
            copy.deepcopy(part).requires_grad_(False) for part in (self.model.encoder, self.critics)
        )
        others = [weight for name, weight in self.model.named_parameters() if not name.startswith("encoder.")]
        parts = {"encoder": list(self.model.encoder.parameters()), "model": others}
        parts |= {"critics": list(self.critics.parameters())}
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.optimizers = {name: optimizer(config.optimizer, weights) for name, weights in parts.items()}
        self.policy_optimizer = optimizer(config.optimizer, self.policy.parameters())
        # Vectors of targets hold parameters in the same order as those of the optimisers.
        targets = {"encoder": self.target_encoder, "critics": self.target_critics}
        self.target_flat = {name: flatten(list(target.parameters())) for name, target in targets.items()}
        heads = {"dynamics": self.model.dynamics, "reward": self.model.reward_head}
        self.module_norms = ModuleNorms({"encoder": self.model.encoder, **heads})

    def make_networks(self) -> Networks:
        config = self.config
        model = registry.load("model", config.model.kind)(config.model, self.specs)
        units = model.config.units
        policy = NoisyPolicy(model.config.latent, units, self.specs.action.shape, config.noise_std, config.noise_clip)
        return Networks(model, TwinValues(model.inputs, units), policy)

    def q_values(self, latent: Tensor, action: Tensor, members: Sequence[int] | None = None) -> Tensor:
        return self.critics(torch.cat([latent, action], -1))

    def final_values(self, latent: Tensor, action: Tensor, members: Sequence[int]) -> Tensor:
        return self.q_values(latent, action).amin(0)

    @property
    def reads(self) -> dict[str, Read]:
        return dict.fromkeys(self.traits.hooks, Transitions(self.config.batch_size, self.config.train_horizon))

    # ---------------------------------------------------------------- updates

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of world model and Q-functions, then one of the policy, on rows (B, H + 1)."""
        return self._update(batch, clock, rng, trains_model=True, trains_controller=True)

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of encoder, dynamics and reward alone."""
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
        result = minimise_jointly(
            {name: self.optimizers[name] for name in names}, self.model_loss, [objective],
            dict.fromkeys(names, rate), config.max_grad_norm, self.module_norms if trains_model else None,
            joint_norm=True,
        )  # fmt: skip
        metrics, write_back = result.metrics, None
        if trains_controller:
            policy = self.policy_optimizer.minimise(
                lambda one: self.policy_loss(result.aux["latents"], one.batch, one.policy_noise), [objective], rate,
                config.max_grad_norm,
            )  # fmt: skip
            metrics |= policy.metrics | {"grad_norm_policy": policy.grad_norm}
            priorities = result.aux["td_errors"].clamp(max=config.loss_limit).cpu().numpy()
            write_back = WriteBack(batch["id"][:, 0], {"priority": priorities}) if "id" in batch else None
        if clock.updates % config.target_every == 0:
            for name in self.target_flat.keys() & names:
                self.target_flat[name].lerp_(self.optimizers[name].flat.data, config.target_rate)
        return Update(metrics, write_back=write_back)

    def make_objective(self, batch: Batch, rng: np.random.Generator) -> Objective:
        """The batch on the device, with all that the losses draw."""
        sequences = make_batch(batch, self.backend)
        obs = shift_images(sequences.obs, self.config.image_shift, rng)
        horizon, count, width = sequences.actions.shape
        target_noise = self.backend.to_tensor(random_array(rng, horizon, count, width))
        policy_noise = self.backend.to_tensor(random_array(rng, horizon + 1, count, width))
        return Objective(sequences._replace(obs=obs), target_noise, policy_noise)

    # ---------------------------------------------------------------- objective

    def model_loss(self, objective: Objective) -> Loss:
        """The joint objective of world model and Q-functions, over H unrolled steps."""
        batch, config = objective.batch, self.config
        with torch.set_grad_enabled(torch.is_grad_enabled() and objective.trains_model):
            latents, rewards = self.unroll(batch)  # (H + 1, B, L), (H, B)
        errors, metrics = dict[str, Tensor](), dict[str, Tensor]()
        aux = {"latents": latents}
        following = {key: x[1:] for key, x in batch.obs.items()}
        if objective.trains_model:
            with torch.no_grad():
                wanted = self.target_encoder(following)  # (H, B, L)
            errors["consistency"] = (latents[1:] - wanted).square().mean(-1)
            errors["reward"] = (rewards - batch.rewards).square()
        if objective.trains_critics:
            targets = self.td_targets(following, objective)  # (H, B)
            pairs = torch.cat([latents[:-1], batch.actions], -1).flatten(0, 1)
            differences = self.critics(pairs).view(-1, *targets.shape) - targets  # (2, H, B)
            errors["value"] = differences.square().sum(0)
            aux["td_errors"] = self._over_steps(differences.detach().abs().sum(0), batch)
            metrics["value"] = weighted_mean(targets, batch.weight)
        sums = {name: self._over_steps(error, batch) for name, error in errors.items()}  # (B)
        limited = {name: each.clamp(max=config.loss_limit) for name, each in sums.items()}
        weighted = torch.stack([getattr(config.loss_weights, name) * each for name, each in limited.items()]).sum(0)
        total = (weighted * batch.importance).mean() / len(batch.actions)
        losses = {f"loss_{name}": each.mean() for name, each in sums.items()}
        return Loss(total, losses | {"loss": total} | metrics, aux)

    def unroll(self, batch: UnrollBatch) -> tuple[Tensor, Tensor]:
        """Latents (H + 1, B, L), the first from the encoder and all others predicted, and predicted rewards (H, B)."""
        latents, rewards = [self.model.encode({key: x[0] for key, x in batch.obs.items()})], []
        for actions in batch.actions:
            latent, reward = self.model.step(latents[-1], actions)
            latents.append(latent)
            rewards.append(reward)
        return torch.stack(latents), torch.stack(rewards)

    @torch.no_grad()
    def td_targets(self, following: dict[str, Tensor], objective: Objective) -> Tensor:
        """Rewards plus the discounted smaller target value of the policy's actions: (H, B)."""
        batch = objective.batch
        latents = self.model.encode(following).flatten(0, 1)
        actions = self.policy(latents).rsample(objective.target_noise.flatten(0, 1))
        values = self.target_critics(torch.cat([latents, actions], -1)).amin(0).view_as(batch.rewards)
        return batch.rewards + self.gamma * (1 - batch.terminated) * values

    def policy_loss(self, latents: Tensor, batch: UnrollBatch, noise: Tensor) -> Loss:
        """Minus the smaller value of the policy's actions on H + 1 latents (H + 1, B, L)."""
        flat = latents.flatten(0, 1)
        with frozen(self.critics):
            actions = self.policy(flat).rsample(noise.flatten(0, 1))
            values = self.q_values(flat, actions).amin(0).view(latents.shape[:2])
        means = torch.stack([weighted_mean(*step) for step in zip(values, batch.reached, strict=True)])
        loss = -(self.config.decay ** torch.arange(len(means), device=means.device) * means).sum()
        return Loss(loss, {"policy_loss": loss, "policy_value": weighted_mean(values.detach(), batch.reached)})

    def _over_steps(self, errors: Tensor, batch: UnrollBatch) -> Tensor:
        """Errors (H, B) summed over steps (B), each step counting ``decay`` times the one before."""
        factors = self.config.decay ** torch.arange(len(errors), device=errors.device).unsqueeze(1)
        summed: Tensor = (factors * batch.weight * errors).sum(0)
        return summed

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The losses of world model and Q-functions on held-out data."""
        return {name: float(value) for name, value in self.model_loss(self.make_objective(batch, rng)).metrics.items()}

    # ---------------------------------------------------------------- state

    def state(self) -> State:
        optimizers = {f"{name}_optimizer": optimizer.state() for name, optimizer in self.optimizers.items()}
        return {
            **self.policy_state(), **optimizers, "policy_optimizer": self.policy_optimizer.state(),
            "target_encoder": module_state(self.target_encoder), "target_critics": module_state(self.target_critics),
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        load_module_state(self.target_encoder, state["target_encoder"])
        load_module_state(self.target_critics, state["target_critics"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state(state[f"{name}_optimizer"])
        self.policy_optimizer.load_state(state["policy_optimizer"])
