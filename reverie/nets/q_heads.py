"""Heads of Q-networks: one value per action, or a distribution of returns per action.

A head maps features to outputs (B, A, K). It computes the values (B, A) from them, and the loss. So double, dueling,
noisy, categorical and quantile learning combine freely, and DQN's code is the same for all heads.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.functional.distributional import project_categorical, quantile_huber_loss


class NoisyLinear(nn.Module):
    """A linear layer with learned noise: Fortunato et al. 2018, "Noisy Networks for Exploration" (factorised form)."""

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, inputs: int, outputs: int, initial_noise: float = 0.5) -> None:
        super().__init__()
        self.mean = nn.Linear(inputs, outputs)
        self.weight_scale = nn.Parameter(torch.full((outputs, inputs), initial_noise / math.sqrt(inputs)))
        self.bias_scale = nn.Parameter(torch.full((outputs,), initial_noise / math.sqrt(inputs)))
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))

    def sample_noise(self, rng: np.random.Generator | None) -> None:
        """Draw new noise, or set it to zero without a generator."""
        for noise in (self.input_noise, self.output_noise):
            if rng is None:
                noise.zero_()
            else:
                sample = torch.as_tensor(rng.standard_normal(len(noise), dtype=np.float32))
                noise.copy_(sample.sign() * sample.abs().sqrt())  # sgn(x) sqrt(|x|)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.mean.weight + self.weight_scale * torch.outer(self.output_noise, self.input_noise)
        return F.linear(x, weight, self.mean.bias + self.bias_scale * self.output_noise)


class HeadConfig(ComponentConfig):
    """Settings of all heads."""

    hidden_units: int = Field(0, ge=0)
    """Width of a hidden layer in each stream of the head; 0 for none. The dueling and Rainbow papers use 512."""


class QHead(nn.Module):
    """Features to outputs (B, actions, atoms), optionally as value plus advantage."""

    def __init__(self, config: HeadConfig, features: int, actions: int, atoms: int, dueling: bool, noisy: bool) -> None:
        super().__init__()
        self.advantage = make_stream(features, config.hidden_units, actions * atoms, noisy)
        self.value = make_stream(features, config.hidden_units, atoms, noisy) if dueling else None
        self.shape = (actions, atoms)

    def forward(self, features: Tensor) -> Tensor:
        advantage: Tensor = self.advantage(features).unflatten(1, self.shape)
        if self.value is None:
            return advantage
        # Wang et al. 2016, Eq. 9
        value: Tensor = self.value(features).unsqueeze(1)
        return value + advantage - advantage.mean(1, keepdim=True)

    def td_errors(self, losses: Tensor) -> Tensor:
        """Absolute TD errors from losses, for priorities. Distributional heads use the losses themselves."""
        return losses


def make_stream(features: int, hidden: int, outputs: int, noisy: bool) -> nn.Module:
    """A linear layer, or two with a ReLU between them."""
    layer = NoisyLinear if noisy else nn.Linear
    if not hidden:
        return layer(features, outputs)
    return nn.Sequential(layer(features, hidden), nn.ReLU(), layer(hidden, outputs))


class ScalarHead(QHead):
    """The expected return, with the Huber loss: Mnih et al. 2015."""

    class Config(HeadConfig):
        kind: str = "scalar"

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, 1, dueling, noisy)

    def values(self, output: Tensor) -> Tensor:
        return output.squeeze(-1)

    def loss(self, q_taken: Tensor, next_q: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Loss per sample, from the outputs (B, K) of the actions taken and of the next actions."""
        targets = rewards + discounts * next_q.squeeze(-1)
        return F.smooth_l1_loss(q_taken.squeeze(-1), targets, reduction="none")

    def td_errors(self, losses: Tensor) -> Tensor:
        """Inverts the Huber loss. Schaul et al. 2016 use the TD error as priority."""
        return torch.where(losses < 0.5, (2 * losses).sqrt(), losses + 0.5)


class CategoricalHead(QHead):
    """Probabilities of fixed returns: Bellemare et al. 2017, "A Distributional Perspective on RL" (C51)."""

    class Config(HeadConfig):
        kind: str = "categorical"
        atoms: int = Field(51, ge=2)
        """Number of fixed returns."""
        low: float = -10.0
        """The lowest fixed return."""
        high: float = 10.0
        """The highest fixed return."""

        @model_validator(mode="after")
        def _ordered(self) -> CategoricalHead.Config:
            if self.low >= self.high:
                raise ValueError("low must be below high")
            return self

    support: Tensor

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, config.atoms, dueling, noisy)
        self.register_buffer("support", torch.linspace(config.low, config.high, config.atoms), persistent=False)

    def values(self, output: Tensor) -> Tensor:
        return output.softmax(-1) @ self.support

    def loss(self, q_taken: Tensor, next_q: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        targets = project_categorical(next_q.softmax(-1), rewards, discounts, self.support)  # Eq. 7
        return -(targets * q_taken.log_softmax(-1)).sum(-1)


class QuantileHead(QHead):
    """Quantiles of the return: Dabney et al. 2018, "Distributional RL with Quantile Regression" (QR-DQN)."""

    class Config(HeadConfig):
        kind: str = "quantile"
        quantiles: int = Field(200, ge=1)
        """Number of quantiles. The paper uses 200."""

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, config.quantiles, dueling, noisy)

    def values(self, output: Tensor) -> Tensor:
        return output.mean(-1)

    def loss(self, q_taken: Tensor, next_q: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        return quantile_huber_loss(q_taken, rewards.unsqueeze(-1) + discounts.unsqueeze(-1) * next_q)  # Eq. 10
