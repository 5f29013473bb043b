"""LaProp with adaptive gradient clipping: the optimiser of DreamerV3.

LaProp (Ziyin et al. 2020) divides gradients by their running RMS before it averages them; Adam does so afterwards.
Adaptive clipping (Brock et al. 2021) bounds the gradient of each tensor by a fraction of that tensor's own norm. The
learning rate rises linearly over the first steps.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.nets.optim import FlatOptimizer, gradient_of

_MIN_NORM = 1e-3
"""Tensors with a smaller norm are clipped as if they had this one, so that zero weights can move."""


class LaProp(FlatOptimizer):
    """Normalise, then average. Every tensor is clipped by its own norm."""

    class Config(ComponentConfig):
        kind: str = "laprop"
        epsilon: float = Field(1e-20, gt=0)
        """Added to the denominator."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the running mean and of the running mean square."""
        clip: float = Field(0.3, ge=0)
        """Largest norm of a tensor's gradient, as a fraction of the tensor's norm. 0 turns clipping off."""
        warmup: int = Field(1000, ge=0)
        """Steps over which the learning rate rises to its value."""

    def update_parameters(self, learning_rate: float) -> None:
        gradient = self.gradient
        if self.config.clip:
            self._clip_each()
        first, second = self.moments["first"], self.moments["second"]
        beta1, beta2 = self.config.betas
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        rms = second.sqrt().div_(math.sqrt(1 - beta2**self.steps)).add_(self.config.epsilon)
        first.lerp_(gradient.div(rms), 1 - beta1)
        warmup = min(1.0, self.steps / self.config.warmup) if self.config.warmup else 1.0
        self.flat.data.add_(first, alpha=-learning_rate * warmup / (1 - beta1**self.steps))

    def _clip_each(self) -> None:
        gradients = [gradient_of(parameter) for parameter in self.parameters]
        values = [parameter.data for parameter in self.parameters]
        largest = self.config.clip * torch.stack(torch._foreach_norm(values)).clamp(min=_MIN_NORM)
        factors = 1 / (torch.stack(torch._foreach_norm(gradients)) / largest).clamp(min=1.0)
        torch._foreach_mul_(gradients, list(factors.unbind()))
