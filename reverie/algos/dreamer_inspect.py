"""Looking into Dreamer from outside: latents, imagined trajectories, decoded observations, held-out losses.

Nothing here changes the agent. Evaluations, reports and notebooks use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from reverie.algos.dreamer_batch import ImaginationNoise, prepare, transform_rewards
from reverie.algos.dreamer_config import DreamerConfig
from reverie.backend import Backend
from reverie.core.types import Array, Batch, Clock, Foreseen, Row
from reverie.models.latent import Decision, Latent, Policy, Posterior, Trajectory
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.one_hot import to_dense

_LARGEST_TANH = 1 - 1e-6


class DreamerInspection:
    """Methods of Dreamer that inspect its model."""

    config: DreamerConfig
    model: RSSMWorldModel
    backend: Backend
    latent_noise: Callable[..., Tensor]
    sampling_policy: Callable[[Tensor], Policy]
    imagination_noise: Callable[[np.random.Generator, int, int], ImaginationNoise]
    model_losses: Callable[[Posterior, Mapping[str, Tensor]], dict[str, Tensor]]

    @torch.no_grad()
    def observe(self, batch: Batch, rng: np.random.Generator) -> Latent:
        """The latents (B, T) of rows (B, T + 1), as an update computes them."""
        context, rows = prepare(batch, self.model, self.config, self.backend)
        return self._observe_rows(context, rows, rng).latent

    @torch.no_grad()
    def imagine(
        self, start: Latent, rng: np.random.Generator, actions: Array | None = None, steps: int = 15
    ) -> Trajectory:
        """Imagine from N latents: with given actions (H, N, *shape), or ``steps`` steps with the policy's actions."""
        if actions is None:
            noise = self.imagination_noise(rng, steps, len(start.deter))
            imagined = self.model.imagine(start, self.sampling_policy(noise.action), noise.latent)
        else:
            given = self.backend.to_tensor(actions)
            latent = self.latent_noise(rng, *given.shape[:2])
            imagined = self.model.imagine(start, lambda features, step: Decision(given[step]), latent)
        return Trajectory(to_dense(imagined.features), imagined.actions)

    def decode(self, latent: Latent | Tensor) -> dict[str, Array]:
        """Latents, or the features of a trajectory, as observations."""
        if isinstance(latent, Tensor):
            latent = self.model.split(latent)
        return {key: value.cpu().numpy() for key, value in self.model.decode(latent).items()}

    @torch.no_grad()
    def foresee(self, batch: Batch, starts: Array, steps: int, rng: np.random.Generator) -> Foreseen:
        """Reconstructions of rows (B, T), and open-loop predictions from N of them with the actions that followed."""
        rows = transform_rewards(self.backend.to_tensors(batch), self.config)
        post = self._observe_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        env, time = self.backend.to_tensor(starts).T
        begin = Latent(*(values[env, time] for values in post.latent))
        actions = rows["action"][env, time + torch.arange(steps, device=self.backend.device)[:, None]]  # (H, N)
        imagined = to_dense(self.imagine(begin, rng, actions.cpu().numpy()).features)
        losses = {name: float(loss.mean()) for name, loss in self.model_losses(post, rows).items()}
        return Foreseen(
            self._predictions(post.latent.features), self._predictions(imagined[1:].transpose(0, 1)), losses
        )

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """Losses of the world model on held-out data. Sequences start from the initial latent."""
        _, rows = prepare(batch, self.model, self.config, self.backend)
        post = self._observe_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        weight = rows.get("weight", torch.ones_like(rows["reward"]))
        return {f"loss_{name}": float((loss * weight).mean()) for name, loss in self.model_losses(post, rows).items()}

    def _observe_rows(self, context: Latent, rows: Mapping[str, Tensor], rng: np.random.Generator) -> Posterior:
        return self.model.observe(context, rows, self.latent_noise(rng, *rows["is_first"].shape))

    @torch.no_grad()
    def _predictions(self, features: Tensor) -> Row:
        """Observations, rewards and the probability to go on (...), in the units of the env."""
        reward, continuation = self.model.predict(features)
        if self.config.reward_transform == "tanh":
            reward = reward.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
        probability = (continuation / self.config.discount).clamp(max=1)
        return {**self.decode(features), "reward": reward.cpu().numpy(), "continuation": probability.cpu().numpy()}
