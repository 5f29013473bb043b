"""How much entropy is worth: the weight that keeps a policy open, fixed or learned."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.specs import Specs


class FixedTemperature(nn.Module):
    """A weight of the entropy that stays."""

    class Config(ComponentConfig):
        kind: str = "fixed"
        value: float = Field(0.2, ge=0)
        """Weight of the entropy."""

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(config.value), persistent=False)

    def forward(self) -> Tensor:
        return self.value

    def loss(self, entropy: Tensor) -> Tensor:
        return torch.zeros_like(entropy)

    def set_gradient(self, entropy: float) -> None:
        """There is nothing to learn."""


class LearnedTemperature(nn.Module):
    """A weight that keeps the policy's entropy at a target."""

    class Config(ComponentConfig):
        kind: str = "learned"
        initial: float = Field(1.0, gt=0)
        """Weight of the entropy at the start."""
        target_entropy: float | None = None
        """Entropy to hold; empty: minus the number of action dimensions, or ``target_share`` for discrete actions."""
        target_share: float = Field(0.7, ge=0, le=1)
        """Share of the greatest entropy to hold with discrete actions. Near 1 a policy that prefers anything is out of
        reach, and the temperature grows without end."""

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(config.initial)))
        size, share = specs.action.size, config.target_share
        usual = share * math.log(size) if specs.action.kind == "discrete" else -float(size)
        self.target = usual if config.target_entropy is None else config.target_entropy

    def forward(self) -> Tensor:
        return self.log_value.detach().exp()

    def loss(self, entropy: Tensor) -> Tensor:
        return self.log_value * (entropy.detach() - self.target)

    def set_gradient(self, entropy: float) -> None:
        """The derivative of the mean loss, written out."""
        assert self.log_value.grad is not None
        self.log_value.grad.fill_(entropy - self.target)
