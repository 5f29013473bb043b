"""What a recurrent state-space model works with: latents, posteriors and imagined trajectories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reverie.nets.one_hot import Features


class Latent(NamedTuple):
    """State of the model: ``deter`` (..., D), and ``stoch``: one-hot (..., K * S), or (..., S) if Gaussian."""

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """The input of heads (..., F)."""
        return torch.cat([self.deter, self.stoch], -1)

    def detach(self) -> Latent:
        return Latent(self.deter.detach(), self.stoch.detach())

    def flatten(self) -> Latent:
        """With all leading axes as one, as imagination starts from."""
        return Latent(self.deter.flatten(0, -2), self.stoch.flatten(0, -2))


class Posterior(NamedTuple):
    """Result of observing rows (B, T)."""

    latent: Latent
    params: Tensor
    """Parameters of the distribution of ``stoch`` (B, T, K, S): probabilities of K classes, or mean and deviation."""


class Decision(NamedTuple):
    """What a policy does in one imagined step."""

    action: Tensor  # (N, *shape)
    output: Tensor | None = None  # (N, ...): what the actor computed, with its gradient
    encoded: Tensor | None = None  # (N, A): the action as the model reads it, if the policy encodes it itself


class Trajectory(NamedTuple):
    """H imagined steps from N latents."""

    features: Features
    """(H + 1, N, F). The first are those of the latents it started from."""
    actions: Tensor
    """(H, N, *shape). Action t leads from features t to t + 1."""
    outputs: Tensor | None = None
    """(H * N, ...): the actor's outputs with their gradient, if the policy gave them."""


Policy = Callable[[Any, int], Decision]
"""From :data:`Features` (N, F) and the step to a decision. Where gradients flow, from tensors."""
