"""The weight of the entropy in SAC: fixed, or learned so that the policy keeps a target entropy."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.specs import Specs


class FixedTemperature(nn.Module):
    """A constant."""

    class Config(ComponentConfig):
        kind: str = "fixed"
        value: float = Field(0.2, ge=0)
        """Weight of the entropy."""

    value: Tensor

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(config.value), persistent=False)

    def forward(self) -> Tensor:
        return self.value

    def loss(self, entropy: Tensor) -> Tensor:
        return torch.zeros_like(entropy)

    def set_gradient(self, entropy: float) -> None:
        """Nothing is learned."""


class LearnedTemperature(nn.Module):
    """Rises while the policy's entropy is below the target, falls while it is above."""

    class Config(ComponentConfig):
        kind: str = "learned"
        initial: float = Field(1.0, gt=0)
        """Weight of the entropy at the start."""
        target_entropy: float | None = None
        """Entropy of the policy to aim for. Empty: minus the number of action dimensions, or for discrete actions the
        fraction ``target_share`` of the maximum."""
        target_share: float = Field(0.7, ge=0, le=1)
        """Target entropy for discrete actions, as a fraction of the maximum. Near 1 it hardly
        lets a policy prefer any action, and the temperature grows without bound."""

    def __init__(self, config: Config, specs: Specs) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(config.initial)))
        size = specs.action.size
        default = config.target_share * math.log(size) if specs.action.kind == "discrete" else -float(size)
        self.target = default if config.target_entropy is None else config.target_entropy

    def forward(self) -> Tensor:
        return self.log_value.detach().exp()

    def loss(self, entropy: Tensor) -> Tensor:
        """Per sample. Haarnoja et al. 2018, Eq. 18, with the logarithm of the temperature in place of itself."""
        return self.log_value * (entropy.detach() - self.target)

    def set_gradient(self, entropy: float) -> None:
        """Write the gradient of the mean loss, for the numpy engine."""
        assert self.log_value.grad is not None
        self.log_value.grad.fill_(entropy - self.target)


Temperature = FixedTemperature | LearnedTemperature
