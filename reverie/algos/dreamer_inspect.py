"""Looking into Dreamer from outside: latents, imagined trajectories, decoded observations, held-out losses.

Nothing here changes the agent. Evaluations, reports and notebooks use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from reverie.agents.inspection import describe_policy
from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import ImaginationNoise, prepare, transform_rewards
from reverie.algos.dreamer_config import DreamerConfig
from reverie.backend import Backend
from reverie.core.types import Array, Batch, Clock, Inspection, Observed, Row
from reverie.models.latent import Decision, Latent, Policy, Posterior, Trajectory
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.one_hot import to_dense

_LARGEST_TANH = 1 - 1e-6


class DreamerInspection:
    """Methods of Dreamer that show its world model. A :class:`reverie.core.contracts.WorldModel` with a decoder."""

    config: DreamerConfig
    model: RSSMWorldModel
    actor: LatentActor
    critic: LatentCritic
    has_critic: bool
    backend: Backend
    latent_noise: Callable[..., Tensor]
    sampling_policy: Callable[[Tensor], Policy]
    imagination_noise: Callable[[np.random.Generator, int, int], ImaginationNoise]
    model_losses: Callable[[Posterior, Mapping[str, Tensor]], dict[str, Tensor]]

    # ---------------------------------------------------------------- the world model, in numpy

    def initial(self, num_envs: int) -> Row:
        return self._to_numpy(self.model.initial(num_envs))

    @torch.no_grad()
    def observe(self, rows: Batch, rng: np.random.Generator) -> Observed:
        tensors = transform_rewards(self.backend.to_tensors(rows), self.config)
        post = self._observe_rows(self.model.initial(len(tensors["is_first"])), tensors, rng)
        losses = {name: float(loss.mean()) for name, loss in self.model_losses(post, tensors).items()}
        return Observed(self._to_numpy(post.latent), losses)

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        imagined = self.imagine_trajectory(self._to_latent(latents), rng, actions.swapaxes(0, 1)).features
        return self._to_numpy(self.model.split(torch.as_tensor(imagined)[1:].transpose(0, 1)))

    @torch.no_grad()
    def predict(self, latents: Row) -> Row:
        """In the units of the env; ``value`` in those of the return that the policy maximises."""
        features = self._to_latent(latents).features
        reward, continuation = self.model.predict(features)
        if self.config.reward_transform == "tanh":
            reward = reward.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
        probability = (continuation / self.config.discount).clamp(max=1)
        found = {"reward": reward, "continuation": probability}
        if self.has_critic:
            found["value"] = self.critic.mean(features)
        return {key: value.cpu().numpy() for key, value in found.items()}

    def decode(self, latents: Row) -> Row:
        return {key: value.cpu().numpy() for key, value in self.model.decode(self._to_latent(latents)).items()}

    @torch.no_grad()
    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        latents = self.observe(rows, rng).latents
        latent, shape = self._to_latent(latents), rows["is_first"].shape
        described = describe_policy(self.actor(latent.flatten().features))
        policy = {key: array.reshape(*shape, *array.shape[1:]) for key, array in described.items()}
        dream = self._dream(Latent(latent.deter[:, -1], latent.stoch[:, -1]), dream_steps, rng, decode)
        return Inspection(
            policy, self.predict(latents).get("value"), latents, self.decode(latents) if decode else {}, dream
        )

    def _dream(self, start: Latent, steps: int, rng: np.random.Generator, decode: bool) -> Row:
        """Imagination from N latents with the policy's actions, (N, H, ...)."""
        if not steps:
            return {}
        imagined = self.imagine_trajectory(start, rng, steps=steps)
        latents = self._to_numpy(self.model.split(torch.as_tensor(imagined.features)[1:].transpose(0, 1)))
        return {
            "action": imagined.actions.transpose(0, 1).cpu().numpy(), **self.predict(latents),
            **{f"latent/{key}": values for key, values in latents.items()}, **(self.decode(latents) if decode else {}),
        }  # fmt: skip

    # ---------------------------------------------------------------- the same in torch

    @torch.no_grad()
    def observe_batch(self, batch: Batch, rng: np.random.Generator) -> Latent:
        """The latents (B, T) of rows (B, T + 1), as an update computes them."""
        context, rows = prepare(batch, self.model, self.config, self.backend)
        return self._observe_rows(context, rows, rng).latent

    @torch.no_grad()
    def imagine_trajectory(
        self, start: Latent, rng: np.random.Generator, actions: Array | None = None, steps: int = 15
    ) -> Trajectory:
        """Imagine from N latents: with given actions (H, N, *shape), or ``steps`` steps with the policy's actions."""
        if actions is None:
            noise = self.imagination_noise(rng, steps, len(start.deter))
            imagined = self.model.imagine(start, self.sampling_policy(noise.action), noise.latent)
        else:
            given = self.backend.to_tensor(np.ascontiguousarray(actions))
            latent = self.latent_noise(rng, *given.shape[:2])
            imagined = self.model.imagine(start, lambda features, step: Decision(given[step]), latent)
        return Trajectory(to_dense(imagined.features), imagined.actions)

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """Losses of the world model on held-out data. Sequences start from the initial latent."""
        _, rows = prepare(batch, self.model, self.config, self.backend)
        post = self._observe_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        weight = rows.get("weight", torch.ones_like(rows["reward"]))
        return {f"loss_{name}": float((loss * weight).mean()) for name, loss in self.model_losses(post, rows).items()}

    def _observe_rows(self, context: Latent, rows: Mapping[str, Tensor], rng: np.random.Generator) -> Posterior:
        return self.model.observe(context, rows, self.latent_noise(rng, *rows["is_first"].shape))

    def _to_numpy(self, latent: Latent) -> Row:
        """As in carries, with classes as indices: int64, because uint8 stands for images."""
        packed = self.model.rssm.pack(latent)
        return {key: value.astype(np.int64) if value.dtype == np.uint8 else value for key, value in packed.items()}

    def _to_latent(self, latents: Row) -> Latent:
        return self.model.rssm.unpack(self.backend.to_tensors(latents))
