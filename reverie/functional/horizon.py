"""Losses and discounts over a short horizon: Hansen et al. 2022 and 2024 (TD-MPC, TD-MPC2)."""

from __future__ import annotations

import torch
from torch import Tensor

from reverie.functional.losses import weighted_mean


def horizon_mean(losses: Tensor, weight: Tensor, decay: float) -> Tensor:
    """The mean over T steps of ``decay ** t`` times the weighted mean of losses (T, B) at step t."""
    steps = [decay**t * weighted_mean(*step) for t, step in enumerate(zip(losses, weight, strict=True))]
    return torch.stack(steps).mean()


def discount_of(episode_steps: int, low: float, high: float) -> float:
    """A discount for episodes of this length: an effective horizon of a fifth of it, within bounds."""
    fraction = episode_steps / 5
    return min(max((fraction - 1) / fraction, low), high)
