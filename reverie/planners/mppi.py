"""Model predictive path integral control: Williams et al. 2015; with elites and a policy, Hansen et al. 2022 (TD-MPC).

An elite counts by the exponential of its return (Hansen et al. 2022, Eq. 4). The action is that of one elite, drawn by
these weights.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from reverie.planners.planner import Planner, PlannerConfig
from reverie.planners.proposals import Proposal, gumbel


class MPPI(Planner):
    """Plans by weighing elites with the exponential of their returns. Defaults are those of TD-MPC2."""

    class Config(PlannerConfig):
        """Model predictive path integral control."""

        kind: str = "mppi"
        """Model predictive path integral control: elites weighted by their returns."""
        temperature: float = Field(0.5, ge=0)
        """Factor of the returns in the exponent. 0 weighs all elites equally, a large one counts only the best."""

    def weigh(self, values: Tensor) -> Tensor:
        weights: Tensor = (self.config.temperature * values).softmax(-1)
        return weights

    def choose(self, proposal: Proposal, elites: Tensor, weights: Tensor, noise: Tensor) -> Tensor:
        index = (weights.log() + gumbel(noise[:, : weights.shape[1]])).argmax(-1)
        return elites[0, torch.arange(len(index), device=index.device), index]
