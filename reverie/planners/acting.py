"""Acting by planning: the plan in the carry, noise from the generator of ``act``, and numbers about the plan.

All that algorithms with a planner share. They add what their model predicts, as a score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import ACT_METRICS, Array, Clock, Row, is_last
from reverie.planners.planner import Plan, Planner, PlanNoise, Score

PLAN = "plan"
"""The key of plans (N, H, W) in carries."""


class PlannedRow(NamedTuple):
    """A plan for the arriving rows of N envs."""

    plan: Plan
    carry: Array
    """(N, H, W): where the plan for the next rows starts."""
    metrics: Array
    """(N,): numbers about the plan by name, for the extra ``act_metrics``."""


class Lookahead(NamedTuple):
    """What planning for some envs needs of a model that has seen their rows."""

    score: Score
    device: torch.device
    policy_candidates: Tensor | None = None


class PlannedActions(NamedTuple):
    """What :func:`plan_acting` found for N envs, of which K act."""

    action: Array
    """(N, *shape). 0 where no action is taken."""
    plans: Array
    """(N, H, W): where the plans for the next rows start."""
    extras: Row
    """``act_metrics`` (K,)."""
    envs: Array
    """Indices (K,) of the envs that act."""
    plan: Plan | None = None
    """Of those envs. None if there are none."""


def acting_envs(now: Row) -> Array:
    """Indices (K,) of the envs that will take an action: not of those that rest or whose episode has just ended."""
    acts = ~is_last(now)
    return np.flatnonzero(acts & now["valid"] if "valid" in now else acts)


def plan_acting(
    planner: Planner,
    look_ahead: Callable[[Array], Lookahead],
    now: Row,
    plans: Array,
    clock: Clock,
    rng: np.random.Generator,
) -> PlannedActions:
    """Plan for the envs that act. ``look_ahead`` gets their indices (K,); it may draw from ``rng``, too."""
    envs = acting_envs(now)
    action = planner.actions.none(len(now["is_first"]))
    if not len(envs):
        return PlannedActions(action, plans, {}, envs)
    score, device, candidates = look_ahead(envs)
    found = plan_row(planner, score, plans[envs], now["is_first"][envs], clock, rng, device, candidates)
    action[envs] = planner.actions.decode(found.plan.action).cpu().numpy()
    after = plans.copy()
    after[envs] = found.carry
    return PlannedActions(action, after, {ACT_METRICS: found.metrics}, envs, found.plan)


def plan_row(
    planner: Planner,
    score: Score,
    plans: Array,
    is_first: Array,
    clock: Clock,
    rng: np.random.Generator,
    device: torch.device,
    policy_candidates: Tensor | None = None,
) -> PlannedRow:
    """Plan for the rows that arrived, starting from the ``plans`` (N, H, W) of the rows before."""
    start = torch.from_numpy(planner.shifted(plans, is_first)).transpose(0, 1).to(device)
    noise = PlanNoise(*(each.to(device) for each in planner.sample_noise(rng, len(is_first))))
    plan = planner.plan(score, start, noise, clock, policy_candidates)
    after = plan.proposal.mean.transpose(0, 1).contiguous().cpu().numpy()
    return PlannedRow(plan, after, plan_metrics(plan))


def plan_metrics(plan: Plan) -> Array:
    """``plan_value``, ``plan_gain``, ``plan_spread``, and ``policy_gain`` if a policy proposed candidates: (N,)."""
    found = {"plan_value": plan.values.mean(1), "plan_gain": plan.gain, "plan_spread": plan.spread}
    if plan.policy_gain is not None:
        found["policy_gain"] = plan.policy_gain
    metrics = np.zeros(len(plan.values), [(name, np.float32) for name in found])
    for name, values in found.items():
        metrics[name] = values.cpu().numpy()
    return metrics
