"""The RSSM with Gaussian latents of PlaNet and the first Dreamer (Hafner et al. 2019, 2020).

Only the distribution of ``stoch`` differs from :mod:`.rssm`. It observes step by step: the fast scan is written for
categorical latents.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array, Row, random_array
from reverie.functional import gaussian
from reverie.models.latent import Latent, Posterior
from reverie.models.rssm import RSSM


class GaussianRSSM(RSSM):
    """Latent variables are normal; parameters are (..., 2, S): mean and standard deviation."""

    def observe(self, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor) -> Posterior:
        """Like :meth:`RSSM.observe`, with normal noise (B, T, S)."""
        return self.observe_stepwise(latent, tokens, actions, is_first, noise)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Samples (..., 1, S)."""
        return self.rsample(params, noise).unsqueeze(-2)

    def rsample(self, params: Tensor, noise: Tensor) -> Tensor:
        return gaussian.rsample_normal(params, noise)

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        return random_array(rng, *leading, self.config.stoch)

    def kl_losses(self, params: Tensor, deter: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
        return gaussian.kl_losses(params, self.prior(deter), free_nats)

    @torch.no_grad()
    def usage(self, params: Tensor) -> dict[str, Tensor]:
        """Entropy of the posterior, and the standard deviation of its means over rows, averaged over variables."""
        spread = params.select(-2, 0).flatten(0, 1).std(0).mean()
        return {"posterior_entropy": gaussian.entropy(params).mean(), "latent_spread": spread}

    def pack(self, latent: Latent) -> Row:
        return {name: value.detach().cpu().numpy() for name, value in zip(Latent._fields, latent, strict=True)}

    def unpack(self, stored: Mapping[str, Tensor]) -> Latent:
        return Latent(stored["deter"], stored["stoch"])

    def _distribution(self, output: Tensor) -> Tensor:
        return gaussian.mean_and_std(output, self.config.min_std)
