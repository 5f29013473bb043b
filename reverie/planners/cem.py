"""The cross-entropy method: Rubinstein 1997; for world models, Hafner et al. 2019 (PlaNet), Algorithm 2.

Elites count equally, and the action is the mean of the last proposal, or its most likely one if actions are discrete.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from reverie.core.schedule import Rate, constant
from reverie.planners.planner import Planner, PlannerConfig
from reverie.planners.proposals import Proposal


class CEM(Planner):
    """Plans by the cross-entropy method. Defaults are those of PlaNet."""

    class Config(PlannerConfig):
        """The cross-entropy method."""

        kind: str = "cem"
        """The cross-entropy method: the mean of equally weighted elites."""
        horizon: int = Field(12, ge=1)
        samples: int = Field(1000, ge=1)
        policy_samples: int = Field(0, ge=0)
        elites: int = Field(100, ge=1)
        iterations: int = Field(10, ge=1)
        min_std: Rate = constant(0.0)
        max_std: float = Field(1.0, gt=0)
        warm_start: bool = False

    def weigh(self, values: Tensor) -> Tensor:
        return torch.full_like(values, 1 / values.shape[1])

    def choose(self, proposal: Proposal, elites: Tensor, weights: Tensor, noise: Tensor) -> Tensor:
        return self.actions.best(proposal.mean[0])
