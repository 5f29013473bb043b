"""Action heads: features to a distribution over actions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from reverie.core.errors import ConfigError
from reverie.core.specs import ActionSpec
from reverie.core.types import Array, random_array
from reverie.nets.distributions import Categorical, Distribution, Gaussian, MultiCategorical


class DiscreteHead(nn.Module):
    """Logits for Discrete, MultiDiscrete and MultiBinary actions."""

    def __init__(self, features: int, action: ActionSpec) -> None:
        super().__init__()
        self.action = action
        self.output = nn.Linear(features, action.size)

    def forward(self, features: Tensor) -> Distribution:
        logits = self.output(features)
        if self.action.kind == "discrete":
            return Categorical(logits)
        return MultiCategorical(logits, self.action.classes, self.action.shape)

    def draw_noise(self, rng: np.random.Generator, count: int) -> Array:
        return rng.random((count, self.action.size), dtype=np.float32)

    def choose(self, logits: Array, noise: Array | None) -> Array:
        """Actions for logits (B, size), in numpy. Without noise the most likely ones."""
        if noise is not None:
            logits = logits - np.log(-np.log(noise + 1e-20) + 1e-20)  # the Gumbel trick
        if self.action.kind == "discrete":
            likeliest: Array = logits.argmax(-1)
            return likeliest
        parts = np.split(logits, np.cumsum(self.action.classes)[:-1], axis=-1)
        return np.stack([part.argmax(-1) for part in parts], 1).reshape(-1, *self.action.shape)


class GaussianHead(nn.Module):
    """A mean per state, and one learned standard deviation per action dimension."""

    def __init__(self, features: int, action: ActionSpec, initial_log_std: float) -> None:
        super().__init__()
        self.action = action
        self.output = nn.Linear(features, action.size)
        self.log_std = nn.Parameter(torch.full(action.shape, float(initial_log_std)))

    def forward(self, features: Tensor) -> Distribution:
        return Gaussian(self.output(features).unflatten(1, self.action.shape), self.log_std)

    def draw_noise(self, rng: np.random.Generator, count: int) -> Array:
        return random_array(rng, count, self.action.size)

    def choose(self, mean: Array, noise: Array | None) -> Array:
        """Actions for means (B, size), in numpy. Without noise the means."""
        if noise is not None:
            mean = mean + np.exp(self.log_std.detach().cpu().numpy()).ravel() * noise
        return mean.reshape(-1, *self.action.shape)


class StateDependentHead(nn.Module):
    """Generalised state-dependent exploration: Raffin et al. 2021, "Smooth Exploration for Robotic RL".

    The noise is a random linear map of the features. The map stays the same for some steps, which makes exploration
    smooth. The standard deviations of its entries determine the variance per state and so the density of an action. As
    in the paper, their gradient does not reach the features.
    """

    def __init__(self, features: int, action: ActionSpec, initial_log_std: float) -> None:
        super().__init__()
        self.action = action
        self.output = nn.Linear(features, action.size)
        self.log_std = nn.Parameter(torch.full((features, action.size), float(initial_log_std)))

    def forward(self, features: Tensor) -> Distribution:
        variance = features.detach().square() @ torch.exp(2 * self.log_std)
        mean = self.output(features).unflatten(1, self.action.shape)
        return Gaussian(mean, 0.5 * torch.log(variance + 1e-6).unflatten(1, self.action.shape))

    def choose(self, mean: Array, noise: Array | None) -> Array:
        """The means as actions. Exploration needs the features: see :meth:`explore`."""
        assert noise is None
        return mean.reshape(-1, *self.action.shape)

    def draw_map(self, rng: np.random.Generator, count: int) -> Array:
        """Random maps (count, features, actions) with standard deviation 1, one per env."""
        return random_array(rng, count, *self.log_std.shape)

    def explore(self, features: Tensor, maps: Tensor) -> Tensor:
        """Actions with the noise of ``maps`` for these features."""
        scaled = maps * self.log_std.exp()
        noise: Tensor = torch.einsum("bf,bfa->ba", features, scaled).unflatten(1, self.action.shape)
        mean: Tensor = self.output(features).unflatten(1, self.action.shape)
        return mean + noise


ActionHead = DiscreteHead | GaussianHead | StateDependentHead


def make_action_head(
    features: int, action: ActionSpec, state_dependent: bool = False, initial_log_std: float = 0.0
) -> ActionHead:
    """The head that fits the action space."""
    if action.parts:
        raise ConfigError(
            "Actions of several kinds at once (a Dict or Tuple space) are not supported by this algorithm.",
            "Try dreamer, or wrap the env so that its actions are of one kind.",
        )
    if action.kind != "continuous":
        return DiscreteHead(features, action)
    head = StateDependentHead if state_dependent else GaussianHead
    return head(features, action, initial_log_std)


def scale_weights(layer: nn.Linear, gain: float) -> None:
    """Orthogonal weights of this gain: small for policies (close to uniform at the start), 1 for values."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
