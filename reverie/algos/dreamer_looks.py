"""What one can see of Dreamer's model from outside: latents, dreams, what they show, how wrong they are.

Nothing of it changes the agent. It is what inspectors, reports and evaluations use, and notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie import backend
from reverie.algos.dreamer_batch import latent_noise, prepare, press_rewards, weigh
from reverie.algos.dreamer_behaviour import Behaviour
from reverie.algos.dreamer_config import DreamerConfig
from reverie.core.types import Array, Batch, Clock, Foreseen, Row
from reverie.models.rssm import Latent, Observed
from reverie.models.world_model import Dream, WorldModel

_LARGEST_TANH = 1 - 1e-6


class Looks:
    """The part of the agent that looks into its model."""

    config: DreamerConfig
    model: WorldModel
    behaviour: Any

    @torch.no_grad()
    def observe(self, batch: Batch, rng: np.random.Generator) -> Latent:
        """The latents (B, T) of rows (B, T + 1) as an update sees them."""
        start, rows = prepare(batch, self.model, self.config)
        return self._follow_rows(start, rows, rng).latent

    @torch.no_grad()
    def imagine(self, start: Latent, rng: np.random.Generator, actions: Array | None = None, steps: int = 15) -> Dream:
        """Dream on from N latents: with these actions (H, N, *shape), or ``steps`` with those of the policy."""
        if actions is None:
            behaviour: Behaviour = self.behaviour
            return behaviour.dream(start, behaviour.draw_noise(rng, steps, len(start.deter)))[0]
        given = torch.as_tensor(actions, device=backend.device())
        noise = latent_noise(self.model, rng, *given.shape[:2])
        return self.model.imagine(start, lambda features, step: given[step], noise)

    def decode(self, latent: Latent | Tensor) -> dict[str, Array]:
        """Latents, or features of a dream, as observations."""
        if isinstance(latent, Tensor):
            latent = self.model.split(latent)
        return {key: value.cpu().numpy() for key, value in self.model.decode(latent).items()}

    @torch.no_grad()
    def foresee(self, batch: Batch, starts: Array, steps: int, rng: np.random.Generator) -> Foreseen:
        """What the model makes of whole rows (B, T), and dreams from N of them with the actions that followed."""
        rows = press_rewards(backend.to_tensors(batch), self.config)
        observed = self._follow_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        env, time = torch.as_tensor(starts, device=backend.device()).T
        begin = Latent(*(part[env, time] for part in observed.latent))
        actions = rows["action"][env, time + torch.arange(steps, device=backend.device())[:, None]]  # (H, N)
        dream = self.imagine(begin, rng, actions.cpu().numpy())
        losses = {name: float(loss.mean()) for name, loss in self.model_losses(observed, rows).items()}
        return Foreseen(self._show(observed.latent.features), self._show(dream.features[1:].transpose(0, 1)), losses)

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The model's losses on data that were kept from training; nothing is known of what came before them."""
        _, rows = prepare(batch, self.model, self.config)
        observed = self._follow_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        losses = weigh(self.model_losses(observed, rows), rows)
        return {f"loss_{name}": float(loss.mean()) for name, loss in losses.items()}

    def model_losses(self, observed: Observed, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of the model, per row (B, T)."""
        return self.model.losses(observed, rows, self.config.discount, self.config.free_nats)

    def _follow_rows(self, start: Latent, rows: Mapping[str, Tensor], rng: np.random.Generator) -> Observed:
        return self.model.observe(start, rows, latent_noise(self.model, rng, *rows["is_first"].shape))

    def _show(self, features: Tensor) -> Row:
        """Features (...) as observations, rewards and the chance to go on."""
        prediction = self.model.predict(features)
        reward = prediction.reward
        if self.config.reward_transform == "tanh":  # back to the size that the env gives
            reward = reward.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
        chance = (prediction.continuation / self.config.discount).clamp(max=1)
        return {
            **self.decode(features),
            "reward": reward.cpu().numpy(),
            "continuation": chance.cpu().numpy(),
        }
