"""LaProp with adaptive gradient clipping: the optimiser of DreamerV3.

LaProp (Ziyin et al. 2020) divides gradients by their running size before it averages them, Adam after. The clipping
(Brock et al. 2021) bounds the gradient of each tensor by a share of that tensor's own norm. The learning rate rises
linearly over the first steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.nets.optim import FlatOptimizer
from reverie.nets.part_norms import PartNorms

_SMALLEST_NORM = 1e-3
"""Tensors smaller than this are clipped as if they had this norm: zero weights must be able to move."""


class LaProp(FlatOptimizer):
    """Scale, then average; every tensor is clipped by its own size."""

    class Config(ComponentConfig):
        kind: str = "laprop"
        epsilon: float = Field(1e-20, gt=0)
        """Added to the denominator."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the running mean and of the running size."""
        clip: float = Field(0.3, ge=0)
        """Largest norm of a tensor's gradient, as a share of the tensor's norm; 0 does not clip."""
        warmup: int = Field(1000, ge=0)
        """Steps over which the learning rate rises to its value."""

    def move(self, learning_rate: float) -> None:
        gradient = self.gradient
        if self.config.clip:
            self._clip_each()
        first, second = self.moments["first"], self.moments["second"]
        beta1, beta2 = self.config.betas
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = second.sqrt().div_(math.sqrt(1 - beta2**self.steps)).add_(self.config.epsilon)
        first.lerp_(gradient.div(size), 1 - beta1)
        rising = min(1.0, self.steps / self.config.warmup) if self.config.warmup else 1.0
        self.flat.data.add_(first, alpha=-learning_rate * rising / (1 - beta1**self.steps))

    def _clip_each(self) -> None:
        gradients = [parameter.grad for parameter in self.parameters]
        values = [parameter.data for parameter in self.parameters]
        largest = self.config.clip * torch.stack(torch._foreach_norm(values)).clamp(min=_SMALLEST_NORM)
        factors = 1 / (torch.stack(torch._foreach_norm(gradients)) / largest).clamp(min=1.0)
        torch._foreach_mul_(gradients, list(factors.unbind()))


def step_together(
    optimizers: Sequence[FlatOptimizer],
    loss: Tensor | Iterable[Tensor],
    learning_rates: Sequence[float],
    parts: PartNorms | None = None,
    max_grad_norm: float | None = None,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """One update of several optimisers by one backward pass; the norms of their gradients before clipping, and those of
    the parts that are watched. ``max_grad_norm`` bounds the gradient of each optimiser as a whole.

    With a rule that treats every number or tensor by itself this equals one optimiser over all of them. Where memory is
    short the loss comes in parts that add up to it, each computed when the one before is done with.
    """
    parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
    for index, part in enumerate([loss] if isinstance(loss, Tensor) else loss):
        _differentiate(part, parameters, is_first=index == 0)
    norms = [torch.linalg.vector_norm(optimizer.gradient) for optimizer in optimizers]
    with (parts or PartNorms({})).watch(optimizers[0].steps) as watched:
        for optimizer, norm, rate in zip(optimizers, norms, learning_rates, strict=True):
            if max_grad_norm is not None:
                optimizer.gradient.mul_(torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0))
            optimizer.steps += 1
            optimizer.move(rate)
    return norms, watched


def _differentiate(loss: Tensor, parameters: Sequence[nn.Parameter], is_first: bool) -> None:
    """Fill the gradients, or add to them."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, found, strict=True):
        if gradient is None:
            if is_first:
                parameter.grad.zero_()
        elif is_first:
            parameter.grad.copy_(gradient)
        else:
            parameter.grad.add_(gradient)
