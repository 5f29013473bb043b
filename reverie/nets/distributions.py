"""Distributions over actions, with noise passed in from outside.

Each has ``sample(noise)``, ``mode()``, ``log_prob(action)`` (B,) and ``entropy()`` (B,). Those that Dreamer uses also
have ``rsample(noise)``: the encoded sample, with a gradient. They are plain classes, because the argument checks of
torch.distributions cost more than our networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LOG_TWO_PI = math.log(2 * math.pi)


class Categorical:
    """One class out of K, from ``logits`` (B, K)."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = F.log_softmax(logits, -1)

    def sample(self, noise: Tensor) -> Tensor:
        """``noise`` is uniform in [0, 1), one number per class (the Gumbel trick)."""
        return (self.log_probs - torch.log(-torch.log(noise + 1e-20) + 1e-20)).argmax(-1)

    def rsample(self, noise: Tensor) -> Tensor:
        """The one-hot sample (B, K) with the gradient of the probabilities (straight-through)."""
        probs = self.log_probs.exp()
        return F.one_hot(self.sample(noise), probs.shape[-1]) + (probs - probs.detach())

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class MultiCategorical:
    """Several independent categorical variables, ``logits`` (B, sum of classes) concatenated; actions (B, *shape)."""

    def __init__(self, logits: Tensor, classes: Sequence[int], shape: Sequence[int]) -> None:
        self.classes = list(classes)
        self.shape = tuple(shape)
        self.parts = [Categorical(part) for part in logits.split(self.classes, -1)]

    def sample(self, noise: Tensor) -> Tensor:
        noises = noise.split(self.classes, -1)
        return self._join([part.sample(n) for part, n in zip(self.parts, noises, strict=True)])

    def rsample(self, noise: Tensor) -> Tensor:
        """Concatenated one-hot samples with the gradient of the probabilities (straight-through)."""
        noises = noise.split(self.classes, -1)
        return torch.cat([part.rsample(n) for part, n in zip(self.parts, noises, strict=True)], -1)

    def mode(self) -> Tensor:
        return self._join([part.mode() for part in self.parts])

    def log_prob(self, action: Tensor) -> Tensor:
        columns = action.flatten(1).unbind(1)
        return torch.stack([p.log_prob(a) for p, a in zip(self.parts, columns, strict=True)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def _join(self, columns: list[Tensor]) -> Tensor:
        return torch.stack(columns, 1).reshape(-1, *self.shape)


class Gaussian:
    """Independent normal variables; ``mean`` (B, *shape), ``log_std`` broadcastable to it."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise.reshape(self.mean.shape)

    def rsample(self, noise: Tensor) -> Tensor:
        """The flattened sample (B, A), differentiable."""
        return self.sample(noise).flatten(1)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        scaled = (action - self.mean) * torch.exp(-self.log_std)
        density = -0.5 * scaled.square() - self.log_std - 0.5 * LOG_TWO_PI
        return density.flatten(1).sum(1)

    def entropy(self) -> Tensor:
        each = (self.log_std + 0.5 * (1 + LOG_TWO_PI)).expand_as(self.mean)
        return each.flatten(1).sum(1)


class SquashedGaussian:
    """A normal variable squashed by tanh into (-1, 1); ``mean`` and ``log_std`` (B, A) are those before tanh."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """A differentiable sample and its log-density (B,)."""
        before = self.mean + self.log_std.exp() * noise
        density = -0.5 * noise.square() - self.log_std - 0.5 * LOG_TWO_PI
        log_prob = (density - _log_tanh_slope(before)).sum(-1)
        return before.tanh(), log_prob

    def sample(self, noise: Tensor) -> Tensor:
        return (self.mean + self.log_std.exp() * noise).tanh()

    def mode(self) -> Tensor:
        return self.mean.tanh()


class TanhGaussian(SquashedGaussian):
    """Like :class:`SquashedGaussian` for actions (B, *shape), with the density of given actions and an entropy."""

    def __init__(self, mean: Tensor, log_std: Tensor, shape: Sequence[int]) -> None:
        super().__init__(mean, log_std)
        self.shape = tuple(shape)

    def sample(self, noise: Tensor) -> Tensor:
        sample: Tensor = super().sample(noise).unflatten(-1, self.shape)
        return sample

    def rsample(self, noise: Tensor) -> Tensor:
        """The flattened sample (B, A), differentiable."""
        return super().sample(noise)

    def mode(self) -> Tensor:
        mode: Tensor = super().mode().unflatten(-1, self.shape)
        return mode

    def log_prob(self, action: Tensor) -> Tensor:
        """Actions are clamped to just inside (-1, 1), because the density is infinite at the bounds."""
        before = action.flatten(1).clamp(-_EDGE, _EDGE).atanh()
        scaled = (before - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * scaled.square() - self.log_std - 0.5 * LOG_TWO_PI - _log_tanh_slope(before)).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy of the normal variable plus the mean log-slope of tanh, by Gauss-Hermite quadrature."""
        nodes, weights = (torch.as_tensor(part, dtype=self.mean.dtype) for part in _HERMITE)
        at = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * (nodes * math.sqrt(2)).to(self.mean.device)
        slope = (_log_tanh_slope(at) * weights.to(self.mean.device)).sum(-1) / math.sqrt(math.pi)
        return (self.log_std + 0.5 * (1 + LOG_TWO_PI) + slope).sum(-1)


class NoisyTanh:
    """Values in (-1, 1) with normal noise, which is clipped to ``clip``; ``mean`` (B, A) is that of the values.

    Samples are clamped to the bounds, and their gradient ignores that (TD-MPC, Hansen et al. 2022).
    """

    def __init__(self, mean: Tensor, std: float, clip: float, shape: Sequence[int]) -> None:
        self.mean, self.std, self.clip, self.shape = mean, std, clip, tuple(shape)

    @property
    def log_std(self) -> Tensor:
        return torch.full_like(self.mean, math.log(self.std))

    def sample(self, noise: Tensor) -> Tensor:
        sample: Tensor = self.rsample(noise).unflatten(-1, self.shape)
        return sample

    def rsample(self, noise: Tensor) -> Tensor:
        """The flattened sample (B, A), with the gradient of the mean."""
        noisy = self.mean + (self.std * noise).clamp(-self.clip, self.clip)
        return self.mean + (noisy.clamp(-_EDGE, _EDGE) - self.mean).detach()

    def mode(self) -> Tensor:
        mode: Tensor = self.mean.unflatten(-1, self.shape)
        return mode


class Joint:
    """Independent parts of an action (B, W), concatenated; discrete parts are whole numbers among the others.

    ``sizes`` are the columns of the noise and ``widths`` the columns of the action that belong to each part.
    """

    def __init__(self, parts: Sequence[Distribution], sizes: Sequence[int], widths: Sequence[int]) -> None:
        self.parts, self.sizes, self.widths = parts, list(sizes), list(widths)

    def sample(self, noise: Tensor) -> Tensor:
        drawn = zip(self.parts, noise.split(self.sizes, -1), strict=True)
        return self._join([part.sample(own) for part, own in drawn])

    def rsample(self, noise: Tensor) -> Tensor:
        """Concatenated encoded samples, differentiable."""
        drawn = zip(self.parts, noise.split(self.sizes, -1), strict=True)
        return torch.cat([part.rsample(own) for part, own in drawn], -1)

    def mode(self) -> Tensor:
        return self._join([part.mode() for part in self.parts])

    def log_prob(self, action: Tensor) -> Tensor:
        columns = zip(self.parts, action.split(self.widths, -1), strict=True)
        return torch.stack([part.log_prob(_as_part(part, own)) for part, own in columns]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def _join(self, columns: Sequence[Tensor]) -> Tensor:
        return torch.cat([column.reshape(len(column), -1).float() for column in columns], -1)


def _as_part(part: Distribution, action: Tensor) -> Tensor:
    """The columns (B, W) of a joint action in the shape and dtype of its part."""
    if isinstance(part, Categorical):
        return action[:, 0].long()
    if isinstance(part, MultiCategorical):
        return action.long().reshape(-1, *part.shape)
    return action.reshape(-1, *part.mode().shape[1:])


def _log_tanh_slope(before: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), accurate also for large x."""
    return 2 * (math.log(2) - before - F.softplus(-2 * before))


_EDGE = 1 - 1e-6
_HERMITE = np.polynomial.hermite.hermgauss(16)
Distribution = Categorical | MultiCategorical | Gaussian | TanhGaussian | Joint
