"""The part of PlaNet that acts and shows itself: the world model, planning in it, inspection."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.algos.rssm_planning import RSSMPlanning
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Inspection, Mode, Row, State, random_array
from reverie.models.latent import Latent
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.backend_module import to_backend
from reverie.nets.one_hot import Features
from reverie.planners.acting import PLAN, plan_row
from reverie.planners.model_returns import Outcome
from reverie.planners.planner import Plan, Planner


class PlaNetAgent(RSSMPlanning):
    """World model and planner, and how they act."""

    def __init__(self, config: Any, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT) -> None:
        self.config, self.specs, self.backend = config, specs, backend
        if config.planner.kind == "none":
            raise ConfigError("PlaNet has no policy: it cannot act without a planner.", "Set algorithm.planner=cem.")
        self.planner  # noqa: B018 - refuses actions that cannot be planned
        with seeded(rng):
            model = registry.load("model", config.model.kind)(config.model, specs)
            self.model: RSSMWorldModel = to_backend(model, backend)

    @property
    def planner(self) -> Planner:
        planner = self.make_planner()
        assert planner is not None
        return planner

    # ---------------------------------------------------------------- acting

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        latent = self.observe_arriving(now, carry, rng)
        found = self.plan_actions(self.planner, latent, now, carry[PLAN], clock, rng, mode)
        action = self._explore(found.action, rng) if mode is Mode.COLLECT else found.action
        return action, {**self.model.rssm.pack(latent), PLAN: found.plans}, found.extras

    def _explore(self, action: Array, rng: np.random.Generator) -> Array:
        """Planned actions (N, *shape) with noise, or at random with some probability."""
        amount = self.config.exploration_noise
        if not amount:
            return action
        if self.specs.action.kind == "continuous":
            noisy: Array = np.clip(action + np.float32(amount) * random_array(rng, *action.shape), -1, 1)
            return noisy
        is_random = rng.random(len(action)) < amount
        chosen: Array = self.specs.action.sample(rng, len(action))
        return np.where(is_random.reshape(-1, *[1] * (action.ndim - 1)), chosen, action)

    def outcome(self, features: Features) -> Outcome:
        """Rewards until the episode ends. Nothing is expected after the horizon."""
        return Outcome(*self._predict(features[1:]))

    def _predict(self, features: Features) -> tuple[Tensor, Tensor]:
        """Reward and the probability (...) that the episode goes on, for features (..., F)."""
        reward = self.model.predict_reward(features)
        if not self.config.loss_weights.continuation:
            return reward, torch.ones_like(reward)
        return reward, self.model.predict_continuation(features)

    # ---------------------------------------------------------------- seen from outside

    @torch.no_grad()
    def predict(self, latents: Row) -> Row:
        found = self._predict(self.to_latent(latents).features)
        return {name: value.cpu().numpy() for name, value in zip(("reward", "continuation"), found, strict=True)}

    @torch.no_grad()
    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        """A plan from every row, without a warm start: as many plans as there are rows. Its return is the value."""
        latents, shape = self.observe(rows, rng).latents, rows["is_first"].shape
        latent = self.to_latent(latents)
        moments = [self._plan(Latent(*(x[:, time] for x in latent)), clock, rng) for time in range(shape[1])]
        proposals = [plan.proposal for plan in moments]
        means, stds = (torch.stack([part[0] for part in parts], 1) for parts in zip(*proposals, strict=True))
        actions = torch.stack([plan.action for plan in moments], 1)
        decoded = self.planner.actions.decode(actions.flatten(0, 1)).unflatten(0, shape)
        kind = {"probs": means} if self.specs.action.classes else {"std": stds}
        policy = {key: value.cpu().numpy() for key, value in {"mode": decoded, **kind}.items()}
        value = torch.stack([plan.values.mean(1) for plan in moments], 1).cpu().numpy()
        dream = self._dream(Latent(*(x[:, -1] for x in latent)), dream_steps, clock, rng) if dream_steps else {}
        if decode and dream:
            dream |= self.decode({key: dream[f"latent/{key}"] for key in latents})
        return Inspection(policy, value, latents, self.decode(latents) if decode else {}, dream)

    def _plan(self, latent: Latent, clock: Clock, rng: np.random.Generator) -> Plan:
        """A plan from N latents, as where an episode starts."""
        planner, count = self.planner, len(latent.deter)
        score, device, candidates = self.look_ahead(latent, rng)
        plans, is_first = planner.initial_carry(count), np.ones(count, bool)
        return plan_row(planner, score, plans, is_first, clock, rng, device, candidates).plan

    def _dream(self, latent: Latent, steps: int, clock: Clock, rng: np.random.Generator) -> Row:
        """Imagination from N latents along plans, (N, H, ...). Where a plan ends, the next one starts."""
        parts: list[tuple[Array, Latent]] = []
        while sum(part[0].shape[1] for part in parts) < steps:
            planner = self.planner
            mean = self._plan(latent, clock, rng).proposal.mean  # (H, N, W)
            actions = torch.stack([planner.actions.decode(planner.actions.best(step)) for step in mean]).cpu().numpy()
            imagined = self.imagined_latent(self.imagine_actions(latent, actions, rng))  # (N, H, ...)
            parts.append((actions.swapaxes(0, 1), imagined))
            latent = Latent(*(x[:, -1] for x in imagined))
        action = np.concatenate([part for part, _ in parts], 1)[:, :steps]
        joined = Latent(*(torch.cat(x, 1)[:, :steps] for x in zip(*(part for _, part in parts), strict=True)))
        latents = self.to_numpy(joined)
        return {"action": action, **self.predict(latents), **{f"latent/{key}": x for key, x in latents.items()}}

    # ---------------------------------------------------------------- state

    def policy_state(self) -> State:
        return {"model": module_state(self.model)}

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.model, state["model"])
