"""Acting by planning: the plan in the carry, noise from the generator of ``act``, and numbers about the plan.

All that algorithms with a planner share. They add what their model predicts, as a score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array, Clock
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
