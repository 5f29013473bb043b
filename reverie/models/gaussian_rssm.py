"""The RSSM with Gaussian latents of PlaNet and the first Dreamer (Hafner et al. 2019, 2020).

Everything around the latents is that of :mod:`.rssm`. One step after the other: these are forms to compare with, and
their scan has no gradient of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array, Row, random_array
from reverie.functional import gaussian
from reverie.models.rssm import RSSM, Latent, Observed
from reverie.nets.precision import in_precision


class GaussianRSSM(RSSM):
    """Latents are numbers, drawn around a mean; distributions are (..., 2, S)."""

    def observe(self, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor) -> Observed:
        """Follow observations as :meth:`RSSM.observe` does, with normal noise (B, T, S)."""
        keep = (~is_first).float().unsqueeze(-1)
        seen = self._project_tokens(tokens).unbind(1)
        moved = self._project_action(actions * keep).unbind(1)
        latents, posteriors = [], []
        for step, (kept, drawn) in enumerate(zip(keep.unbind(1), noise.unbind(1), strict=True)):
            deter = self._move(Latent(latent.deter * kept, latent.stoch * kept), moved[step])
            posteriors.append(self._probability(self._guess(deter, seen[step])))
            latent = Latent(deter, self.draw_through(posteriors[-1], drawn))
            latents.append(latent)
        deters, stochs = zip(*latents, strict=True)
        return Observed(Latent(torch.stack(deters, 1), torch.stack(stochs, 1)), torch.stack(posteriors, 1))

    @in_precision
    def _guess(self, deter: Tensor, seen: Tensor) -> Tensor:
        """What memory and observation make of the latent."""
        return self.posterior_output(self.posterior_hidden(self.posterior_deter(deter) + seen))

    def draw(self, probability: Tensor, noise: Tensor) -> Tensor:
        """Latents (..., 1, S), as one row of statistics would be."""
        return gaussian.draw_normal(probability, noise).unsqueeze(-2)

    def draw_through(self, probability: Tensor, noise: Tensor) -> Tensor:
        return gaussian.draw_normal(probability, noise)

    def draw_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        return random_array(rng, *leading, self.config.stoch)

    def divergences(self, posterior: Tensor, deter: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
        return gaussian.split_divergence(posterior, self.prior(deter), free_nats)

    @torch.no_grad()
    def usage(self, posterior: Tensor) -> dict[str, Tensor]:
        """Entropy of the posterior, and how far the means are spread over the rows, on average over variables."""
        spread = posterior.select(-2, 0).flatten(0, 1).std(0).mean()
        return {"posterior_entropy": gaussian.entropy(posterior).mean(), "latent_spread": spread}

    def pack(self, latent: Latent) -> Row:
        return {name: part.detach().cpu().numpy() for name, part in zip(Latent._fields, latent, strict=True)}

    def unpack(self, stored: Mapping[str, Tensor]) -> Latent:
        return Latent(stored["deter"], stored["stoch"])

    def _probability(self, output: Tensor) -> Tensor:
        return gaussian.mean_and_deviation(output, self.config.min_std)
