"""Optimisers over one flat vector.

All parameters of an algorithm become views into one tensor, and their gradients views into another. Clipping,
zeroing and stepping are then one operation each instead of one per layer, which for small networks is most of
the cost of an update. The arithmetic is torch's own.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie import backend
from reverie.core.config import ComponentConfig
from reverie.core.types import State


class FlatOptimizer:
    """Base of the optimisers here; ``make`` says which of torch's does the arithmetic."""

    def __init__(self, config: ComponentConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        first = self.parameters[0]
        size = sum(parameter.numel() for parameter in self.parameters)
        self.flat = nn.Parameter(torch.zeros(size, dtype=first.dtype, device=first.device))
        self.flat.grad = torch.zeros_like(self.flat)
        self._tie(self.flat.data, self.flat.grad)
        self.inner = self.make(config)

    def make(self, config: ComponentConfig) -> torch.optim.Optimizer:
        raise NotImplementedError

    def _tie(self, values: Tensor, gradients: Tensor) -> None:
        """Point every parameter and gradient at its stretch of the flat vectors, in its own memory order."""
        start = 0
        for parameter in self.parameters:
            layout = (parameter.size(), parameter.stride(), start)
            place = values.as_strided(*layout)
            place.copy_(parameter.data)
            parameter.data = place
            parameter.grad = gradients.as_strided(*layout)
            start += parameter.numel()

    def step(self, loss: Tensor, learning_rate: float, max_grad_norm: float | None = None) -> Tensor:
        """One update; returns the norm of the gradient before clipping."""
        gradient = self.flat.grad
        assert gradient is not None
        gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.linalg.vector_norm(gradient)
        if max_grad_norm is not None:
            gradient.mul_(torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0))
        self.inner.param_groups[0]["lr"] = learning_rate
        self.inner.step()
        return norm

    def state(self) -> State:
        moments = backend.to_arrays(dict(self.inner.state.get(self.flat, {})))
        return {"learning_rate": self.inner.param_groups[0]["lr"], "moments": moments}

    def load_state(self, state: State) -> None:
        self.inner.param_groups[0]["lr"] = state["learning_rate"]
        if state["moments"]:
            self.inner.state[self.flat] = {
                key: torch.as_tensor(value, device=self.flat.device if value.ndim else None).clone()
                for key, value in state["moments"].items()
            }


class Adam(FlatOptimizer):
    """Kingma & Ba 2015."""

    class Config(ComponentConfig):
        kind: str = "adam"
        epsilon: float = Field(1e-5, gt=0)
        """Added to the denominator; 1e-5 is usual in PPO."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the two running moments."""

    def make(self, config: Config) -> torch.optim.Optimizer:  # type: ignore[override]
        return torch.optim.Adam([self.flat], eps=config.epsilon, betas=config.betas, fused=True)


class AdamW(FlatOptimizer):
    """Loshchilov & Hutter 2019: Adam with decoupled weight decay."""

    class Config(ComponentConfig):
        kind: str = "adamw"
        epsilon: float = Field(1e-8, gt=0)
        """Added to the denominator."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the two running moments."""
        weight_decay: float = Field(1e-2, ge=0)
        """Share of each weight taken away per update, times the learning rate."""

    def make(self, config: Config) -> torch.optim.Optimizer:  # type: ignore[override]
        return torch.optim.AdamW(
            [self.flat], eps=config.epsilon, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
