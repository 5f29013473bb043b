"""Planning with a recurrent state-space model: PlaNet's only way to act, and an option of Dreamer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.algos.rssm_agent import RSSMAgent
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.core.types import Array, Carry, Clock, Mode, Row
from reverie.models.latent import Decision, Latent
from reverie.nets.one_hot import Features
from reverie.planners.acting import PLAN, Lookahead, PlannedActions, plan_acting
from reverie.planners.model_returns import Outcome, repeat_each, score_by
from reverie.planners.planner import Planner


class RSSMPlanning(RSSMAgent):
    """Base of agents that may plan in an RSSM. They say what imagined states are worth."""

    config: Any
    specs: Specs

    def outcome(self, features: Features) -> Outcome:
        """What imagined features (H + 1, M, F) lead to."""
        raise NotImplementedError

    def policy_candidates(self, latent: Latent, rng: np.random.Generator) -> Tensor | None:
        """Action sequences (H, N, policy_samples, W) that a policy proposes from N latents; None without a policy."""
        return None

    def make_planner(self) -> Planner | None:
        """None for ``kind: none``. Made anew where it is used, because a phase may change its settings."""
        config = self.config.planner
        return None if config.kind == "none" else registry.load("planner", config.kind)(config, self.specs.action)

    def initial_carry(self, num_envs: int) -> Carry:
        planner, carry = self.make_planner(), super().initial_carry(num_envs)
        return carry if planner is None else {**carry, PLAN: planner.initial_carry(num_envs)}

    def plan_actions(
        self,
        planner: Planner,
        latent: Latent,
        now: Row,
        plans: Array,
        clock: Clock,
        rng: np.random.Generator,
        mode: Mode,
    ) -> PlannedActions:
        """Plan from the latents (N, ...) of the arriving rows. Where a controller acts, nothing is planned."""
        if mode is Mode.OBSERVE:
            nobody = np.empty(0, np.int64)
            return PlannedActions(self.specs.action.zeros(len(plans)), planner.initial_carry(len(plans)), {}, nobody)

        def look_ahead(envs: Array) -> Lookahead:
            index = torch.as_tensor(envs, device=latent.deter.device)
            return self.look_ahead(Latent(*(part[index] for part in latent)), rng)

        return plan_acting(planner, look_ahead, now, plans, clock, rng)

    def look_ahead(self, latent: Latent, rng: np.random.Generator) -> Lookahead:
        """Scores of action sequences from N latents, by samples of the prior (Hafner et al. 2019, Algorithm 2).

        The noise of these samples is the same in every iteration of a plan.
        """
        config = self.config.planner
        start = repeat_each(latent, config.samples)
        noise = self.latent_noise(rng, config.horizon, len(latent.deter) * config.samples)

        def imagine(actions: Tensor, iteration: int) -> Outcome:
            follow = lambda features, step: Decision(actions[step], encoded=actions[step])  # noqa: E731
            return self.outcome(self.model.imagine(start, follow, noise).features)

        return Lookahead(score_by(imagine), latent.deter.device, self.policy_candidates(latent, rng))
