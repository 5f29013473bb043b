"""Optimisers over one flat vector.

All parameters of an algorithm become views into one tensor, and their gradients views into another. Clipping,
zeroing and stepping are then one operation each instead of one per layer, which for small networks is most of
the cost of an update.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie import backend
from reverie.core.config import ComponentConfig
from reverie.core.types import State


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One vector that holds all parameters from now on: they become views of it and keep their values."""
    size = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, place in zip(parameters, places(parameters, flat), strict=True):
        place.copy_(parameter.data)
        parameter.data = place
    return flat


def places(parameters: Sequence[nn.Parameter], flat: Tensor) -> Iterator[Tensor]:
    """The stretch of a flat vector that belongs to each parameter, in the parameter's own memory order."""
    start = 0
    for parameter in parameters:
        yield flat.as_strided(parameter.size(), parameter.stride(), start)
        start += parameter.numel()


class FlatOptimizer:
    """Base of the optimisers; ``moments`` are what a rule remembers, each as long as all parameters together."""

    def __init__(self, config: ComponentConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.config: Any = config
        self.parameters = list(parameters)
        self.steps = 0
        self.moments: dict[str, Tensor] = {}
        self.flat = nn.Parameter(flatten(self.parameters))
        self.flat.grad = torch.zeros_like(self.flat)
        for parameter, place in zip(self.parameters, places(self.parameters, self.flat.grad), strict=True):
            parameter.grad = place

    def step(self, loss: Tensor, learning_rate: float, max_grad_norm: float | None = None) -> Tensor:
        """One update; returns the norm of the gradient before clipping."""
        gradient = self.flat.grad
        assert gradient is not None
        gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.linalg.vector_norm(gradient)
        if max_grad_norm is not None:
            gradient.mul_(torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0))
        self.steps += 1
        self.move(self.flat.data, gradient, learning_rate)
        return norm

    def move(self, values: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """Change the values by the rule of the optimiser."""
        raise NotImplementedError

    def state(self) -> State:
        return {"steps": self.steps, "moments": backend.to_arrays(self.moments)}

    def load_state(self, state: State) -> None:
        self.steps = int(state["steps"])
        for name, values in state["moments"].items():
            self.moments[name].copy_(torch.as_tensor(values))


class Adam(FlatOptimizer):
    """Kingma & Ba 2015. Written out: torch's own class spends several times longer on bookkeeping than on this."""

    class Config(ComponentConfig):
        kind: str = "adam"
        epsilon: float = Field(1e-5, gt=0)
        """Added to the denominator; 1e-5 is usual in PPO."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the two running moments."""

    def __init__(self, config: Any, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(config, parameters)
        self.moments = {"first": torch.zeros_like(self.flat.data), "second": torch.zeros_like(self.flat.data)}

    def move(self, values: Tensor, gradient: Tensor, learning_rate: float) -> None:
        first, second = self.moments["first"], self.moments["second"]
        beta1, beta2 = self.config.betas
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = second.sqrt().div_(math.sqrt(1 - beta2**self.steps)).add_(self.config.epsilon)
        values.addcdiv_(first, scale, value=-learning_rate / (1 - beta1**self.steps))


class AdamW(Adam):
    """Loshchilov & Hutter 2019: Adam with decoupled weight decay."""

    class Config(ComponentConfig):
        kind: str = "adamw"
        epsilon: float = Field(1e-8, gt=0)
        """Added to the denominator."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the two running moments."""
        weight_decay: float = Field(1e-2, ge=0)
        """Share of each weight taken away per update, times the learning rate."""

    def move(self, values: Tensor, gradient: Tensor, learning_rate: float) -> None:
        values.mul_(1 - learning_rate * self.config.weight_decay)
        super().move(values, gradient, learning_rate)
