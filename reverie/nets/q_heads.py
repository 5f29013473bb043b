"""Last layers of value-based agents: one value per action, or a whole distribution of returns per action.

Each head maps features to ``(B, A, K)``, says what the values ``(B, A)`` are, and has the loss that fits it. So double,
dueling, noisy, categorical and quantile learning combine freely and DQN itself knows none of them.
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

    def __init__(self, inputs: int, outputs: int, initial_noise: float = 0.5) -> None:
        super().__init__()
        self.mean = nn.Linear(inputs, outputs)
        self.weight_scale = nn.Parameter(torch.full((outputs, inputs), initial_noise / math.sqrt(inputs)))
        self.bias_scale = nn.Parameter(torch.full((outputs,), initial_noise / math.sqrt(inputs)))
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))

    def draw(self, rng: np.random.Generator | None) -> None:
        """New noise; without a generator, none."""
        for noise in (self.input_noise, self.output_noise):
            if rng is None:
                noise.zero_()
            else:
                drawn = torch.as_tensor(rng.standard_normal(len(noise), dtype=np.float32))
                noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def forward(self, x: Tensor) -> Tensor:
        weight = self.mean.weight + self.weight_scale * torch.outer(self.output_noise, self.input_noise)
        return F.linear(x, weight, self.mean.bias + self.bias_scale * self.output_noise)


class HeadConfig(ComponentConfig):
    """What all heads have."""

    hidden_units: int = Field(0, ge=0)
    """Width of a hidden layer in each stream of the head, as in the papers on dueling and Rainbow (512); 0: none."""


class QHead(nn.Module):
    """Base of the heads: features to (B, actions, atoms), optionally as value plus advantage."""

    def __init__(self, config: HeadConfig, features: int, actions: int, atoms: int, dueling: bool, noisy: bool) -> None:
        super().__init__()
        self.advantage = make_stream(features, config.hidden_units, actions * atoms, noisy)
        self.value = make_stream(features, config.hidden_units, atoms, noisy) if dueling else None
        self.shape = (actions, atoms)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features).unflatten(1, self.shape)
        if self.value is None:
            return advantage
        # Wang et al. 2016, Eq. 9
        return self.value(features).unsqueeze(1) + advantage - advantage.mean(1, keepdim=True)

    def surprise(self, losses: Tensor) -> Tensor:
        """What a buffer should take as priority of samples with these losses."""
        return losses


def make_stream(features: int, hidden: int, outputs: int, noisy: bool) -> nn.Module:
    """A linear layer, or two with a ReLU between them."""
    layer = NoisyLinear if noisy else nn.Linear
    if not hidden:
        return layer(features, outputs)
    return nn.Sequential(layer(features, hidden), nn.ReLU(), layer(hidden, outputs))


class ScalarHead(QHead):
    """The expected return, with Huber's loss: Mnih et al. 2015."""

    class Config(HeadConfig):
        kind: str = "scalar"

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, 1, dueling, noisy)

    def values(self, output: Tensor) -> Tensor:
        return output.squeeze(-1)

    def loss(self, chosen: Tensor, then: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Per sample, for the chosen actions' outputs (B, K) now and then."""
        target = reward + discount * then.squeeze(-1)
        return F.smooth_l1_loss(chosen.squeeze(-1), target, reduction="none")

    def surprise(self, losses: Tensor) -> Tensor:
        """The size of the error behind Huber's loss, as in Schaul et al. 2016."""
        return torch.where(losses < 0.5, (2 * losses).sqrt(), losses + 0.5)


class CategoricalHead(QHead):
    """Probabilities of fixed returns: Bellemare et al. 2017, "A Distributional Perspective on RL" (C51)."""

    class Config(HeadConfig):
        kind: str = "categorical"
        atoms: int = Field(51, ge=2)
        """How many returns are told apart."""
        low: float = -10.0
        """The smallest of them."""
        high: float = 10.0
        """The largest of them."""

        @model_validator(mode="after")
        def _ordered(self) -> CategoricalHead.Config:
            if self.low >= self.high:
                raise ValueError("low must be below high")
            return self

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, config.atoms, dueling, noisy)
        self.register_buffer("support", torch.linspace(config.low, config.high, config.atoms), persistent=False)

    def values(self, output: Tensor) -> Tensor:
        return output.softmax(-1) @ self.support

    def loss(self, chosen: Tensor, then: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        target = project_categorical(then.softmax(-1), reward, discount, self.support)
        return -(target * chosen.log_softmax(-1)).sum(-1)


class QuantileHead(QHead):
    """Quantiles of the return: Dabney et al. 2018, "Distributional RL with Quantile Regression" (QR-DQN)."""

    class Config(HeadConfig):
        kind: str = "quantile"
        quantiles: int = Field(200, ge=1)
        """How many quantiles are learnt; 200 in the paper."""

    def __init__(self, config: Config, features: int, actions: int, dueling: bool, noisy: bool) -> None:
        super().__init__(config, features, actions, config.quantiles, dueling, noisy)

    def values(self, output: Tensor) -> Tensor:
        return output.mean(-1)

    def loss(self, chosen: Tensor, then: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        return quantile_huber_loss(chosen, reward.unsqueeze(-1) + discount.unsqueeze(-1) * then)
