"""What agents with a recurrent state-space model share: latents in the carry, and the model seen from outside."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from reverie.backend import Backend
from reverie.core.types import Array, Batch, Carry, Clock, Observed, Row, observation_keys
from reverie.models.latent import Decision, Latent, Posterior, Trajectory
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.one_hot import to_dense


class RSSMAgent:
    """Base of agents with an RSSM. A :class:`reverie.core.contracts.WorldModel` with a decoder and held-out losses.

    Nothing here changes the agent.
    """

    model: RSSMWorldModel
    backend: Backend

    def prepare_batch(self, batch: Batch) -> tuple[Latent, dict[str, Tensor]]:
        """The latents before the sequences of a batch (B, T + 1), and their rows (B, T) on the device."""
        raise NotImplementedError

    def prepare_rows(self, rows: Batch) -> dict[str, Tensor]:
        """Rows (B, T) on the device, as the model learns from them."""
        return self.backend.to_tensors(rows)

    def model_losses(self, post: Posterior, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Losses of the world model per row (B, T)."""
        raise NotImplementedError

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return self.model.rssm.pack(self.model.initial(num_envs))

    def observe_arriving(self, now: Row, carry: Carry, rng: np.random.Generator) -> Latent:
        """The latents after the arriving rows (N, ...)."""
        count = len(now["is_first"])
        keys = (*observation_keys(now), "previous_action", "is_first")
        rows = self.backend.to_tensors({key: now[key][:, None] for key in keys})
        before = self.model.rssm.unpack(self.backend.to_tensors(carry))
        post = self.model.observe(before, rows, self.latent_noise(rng, count, 1)).latent
        return Latent(post.deter[:, 0], post.stoch[:, 0])

    def latent_noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        return self.backend.to_tensor(self.model.rssm.sample_noise(rng, *leading))

    # ---------------------------------------------------------------- the world model, in numpy

    def initial(self, num_envs: int) -> Row:
        return self.to_numpy(self.model.initial(num_envs))

    @torch.no_grad()
    def observe(self, rows: Batch, rng: np.random.Generator) -> Observed:
        tensors = self.prepare_rows(rows)
        post = self.observe_rows(self.model.initial(len(tensors["is_first"])), tensors, rng)
        losses = {name: float(loss.mean()) for name, loss in self.model_losses(post, tensors).items()}
        return Observed(self.to_numpy(post.latent), losses)

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        imagined = self.imagine_actions(self.to_latent(latents), actions.swapaxes(0, 1), rng)
        return self.to_numpy(self.imagined_latent(imagined))

    def decode(self, latents: Row) -> Row:
        return {key: value.cpu().numpy() for key, value in self.model.decode(self.to_latent(latents)).items()}

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """Losses of the world model on held-out data. Sequences start from the initial latent."""
        _, rows = self.prepare_batch(batch)
        post = self.observe_rows(self.model.initial(len(rows["is_first"])), rows, rng)
        weight = rows.get("weight", torch.ones_like(rows["reward"]))
        return {f"loss_{name}": float((loss * weight).mean()) for name, loss in self.model_losses(post, rows).items()}

    # ---------------------------------------------------------------- the same in torch

    @torch.no_grad()
    def observe_batch(self, batch: Batch, rng: np.random.Generator) -> Latent:
        """The latents (B, T) of rows (B, T + 1), as an update computes them."""
        return self.observe_rows(*self.prepare_batch(batch), rng).latent

    def observe_rows(self, context: Latent, rows: Mapping[str, Tensor], rng: np.random.Generator) -> Posterior:
        return self.model.observe(context, rows, self.latent_noise(rng, *rows["is_first"].shape))

    @torch.no_grad()
    def imagine_actions(self, start: Latent, actions: Array, rng: np.random.Generator) -> Trajectory:
        """Imagine from N latents with given actions (H, N, *shape)."""
        given = self.backend.to_tensor(np.ascontiguousarray(actions))
        noise = self.latent_noise(rng, *given.shape[:2])
        imagined = self.model.imagine(start, lambda features, step: Decision(given[step]), noise)
        return Trajectory(to_dense(imagined.features), imagined.actions)

    def imagined_latent(self, imagined: Trajectory) -> Latent:
        """The latents (N, H, ...) after each action of a trajectory."""
        return self.model.split(torch.as_tensor(imagined.features)[1:].transpose(0, 1))

    def to_numpy(self, latent: Latent) -> Row:
        """As in carries, with classes as indices: int64, because uint8 stands for images."""
        packed = self.model.rssm.pack(latent)
        return {key: value.astype(np.int64) if value.dtype == np.uint8 else value for key, value in packed.items()}

    def to_latent(self, latents: Row) -> Latent:
        return self.model.rssm.unpack(self.backend.to_tensors(latents))
