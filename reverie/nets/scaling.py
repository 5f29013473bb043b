"""Running scales of returns, so that one entropy weight and one learning rate fit rewards of any size."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from reverie.core.config import ComponentConfig


class PercentileScale(nn.Module):
    """Moving average of the range between two percentiles. Never scales up small returns. Hafner et al. 2023, Eq. 7."""

    class Config(ComponentConfig):
        kind: str = "percentile"
        rate: float = Field(0.01, gt=0, le=1)
        """Step of the moving average of the percentiles."""
        low: float = Field(5.0, ge=0, le=100)
        """Lower percentile."""
        high: float = Field(95.0, ge=0, le=100)
        """Upper percentile."""
        limit: float = Field(1.0, gt=0)
        """Smallest scale, so that noise around equal returns is not amplified."""

    low: Tensor
    high: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    def update(self, returns: Tensor) -> None:
        """Move towards the percentiles of a batch of returns, of any shape."""
        levels = torch.tensor([self.config.low, self.config.high], device=returns.device) / 100
        low, high = torch.quantile(returns.detach().flatten(), levels)
        self.low.lerp_(low, self.config.rate)
        self.high.lerp_(high, self.config.rate)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Offset and scale."""
        return self.low, (self.high - self.low).clamp(min=self.config.limit)


class RangeScale(nn.Module):
    """Moving average of the range between two percentiles, itself at least ``limit``. Hansen et al. 2024 (TD-MPC2).

    Unlike :class:`PercentileScale`, which averages both percentiles, it starts at ``limit`` and has no offset.
    """

    class Config(ComponentConfig):
        kind: str = "range"
        rate: float = Field(0.01, gt=0, le=1)
        """Step of the moving average of the range."""
        low: float = Field(5.0, ge=0, le=100)
        """Lower percentile."""
        high: float = Field(95.0, ge=0, le=100)
        """Upper percentile."""
        limit: float = Field(1.0, gt=0)
        """Smallest range, so that noise around equal returns is not amplified."""

    range: Tensor
    zero: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("range", torch.full((), config.limit))
        self.register_buffer("zero", torch.zeros(()), persistent=False)

    def update(self, returns: Tensor) -> None:
        """Move towards the range of a batch of returns, of any shape."""
        levels = torch.tensor([self.config.low, self.config.high], device=returns.device) / 100
        low, high = torch.quantile(returns.detach().flatten(), levels)
        self.range.lerp_((high - low).clamp(min=self.config.limit), self.config.rate)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Offset and scale."""
        return self.zero, self.range


class DeviationScale(nn.Module):
    """Running mean and standard deviation, with bias correction because both start at 0."""

    class Config(ComponentConfig):
        kind: str = "deviation"
        rate: float = Field(0.01, gt=0, le=1)
        """Step of the moving average of the moments."""
        limit: float = Field(1e-8, gt=0)
        """Smallest scale."""

    mean: Tensor
    square: Tensor
    total: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        for name in ("mean", "square", "total"):
            self.register_buffer(name, torch.zeros(()))

    def update(self, returns: Tensor) -> None:
        returns = returns.detach()
        self.mean.lerp_(returns.mean(), self.config.rate)
        self.square.lerp_(returns.square().mean(), self.config.rate)
        self.total.lerp_(torch.ones_like(self.total), self.config.rate)

    def forward(self) -> tuple[Tensor, Tensor]:
        total = self.total.clamp(min=self.config.rate)
        mean = self.mean / total
        return mean, (self.square / total - mean.square()).clamp(min=0).sqrt().clamp(min=self.config.limit)


class NoScale(nn.Module):
    """Leaves returns unchanged."""

    class Config(ComponentConfig):
        kind: str = "none"

    one: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(()), persistent=False)

    def update(self, returns: Tensor) -> None:
        """Nothing to update."""

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.one - 1, self.one
