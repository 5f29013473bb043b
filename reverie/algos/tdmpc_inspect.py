"""Looking into TD-MPC and TD-MPC2 from outside: latents, predictions ahead, the policy. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.agents.inspection import describe_policy
from reverie.backend import Backend
from reverie.core.types import Array, Batch, Clock, Inspection, Observed, Row, observation_keys


class TDMPCInspection:
    """Methods that show the world model: a :class:`reverie.core.contracts.WorldModel` without a decoder.

    Rewards are predicted for a latent and an action. So the prediction that arrives with a latent is kept beside it.
    """

    model: Any
    policy: Any
    backend: Backend
    q_values: Callable[..., Tensor]

    def initial(self, num_envs: int) -> Row:
        shape = (num_envs, self.model.config.latent)
        latent = np.full(shape, self.model.unknown, np.float32)
        return {"latent": latent, "reward": np.zeros(num_envs, np.float32)}

    @torch.no_grad()
    def observe(self, rows: Batch, rng: np.random.Generator) -> Observed:
        tensors = self.backend.to_tensors(rows)
        latent = self.model.encode({key: tensors[key] for key in observation_keys(rows)})  # (B, T, L)
        actions = tensors["previous_action"].reshape(*latent.shape[:2], -1)
        predicted, reward = self.model.step(latent[:, :-1], actions[:, 1:])
        follows = ~tensors["is_first"][:, 1:]
        reward = torch.cat([torch.zeros_like(reward[:, :1]), reward * follows], 1)
        error = (predicted - latent[:, 1:]).square().mean(-1)
        losses = {
            "consistency": float((error * follows).sum() / follows.sum().clamp(min=1)),
            "reward_squared_error": float((reward - tensors["reward"]).square().mean()),
        }
        return Observed({"latent": latent.cpu().numpy(), "reward": reward.cpu().numpy()}, losses)

    @torch.no_grad()
    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        latent = self.backend.to_tensor(latents["latent"])
        given = self.backend.to_tensor(np.ascontiguousarray(actions))
        given = given.reshape(*given.shape[:2], -1)
        found = []
        for step in given.unbind(1):
            latent, reward = self.model.step(latent, step)
            found.append((latent, reward))
        stacked = (torch.stack(parts, 1).cpu().numpy() for parts in zip(*found, strict=True))
        return dict(zip(("latent", "reward"), stacked, strict=True))

    @torch.no_grad()
    def predict(self, latents: Row) -> Row:
        """``value`` is the mean of all Q-functions for the policy's most likely action."""
        latent = self.backend.to_tensor(latents["latent"])
        flat = latent.flatten(0, -2)
        value = self.q_values(flat, self.policy(flat).mode().flatten(1)).mean(0).view(latent.shape[:-1])
        continuation = self.model.continuation(latent)
        return {
            "reward": np.asarray(latents["reward"]), "continuation": continuation.cpu().numpy(),
            "value": value.cpu().numpy(),
        }  # fmt: skip

    @torch.no_grad()
    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        """The policy is the one without planning."""
        latents = self.observe(rows, rng).latents
        latent, shape = self.backend.to_tensor(latents["latent"]), rows["is_first"].shape
        described = describe_policy(self.policy(latent.flatten(0, 1)))
        policy = {key: array.reshape(*shape, *array.shape[1:]) for key, array in described.items()}
        dream = self._dream(latent[:, -1], dream_steps)
        return Inspection(policy, self.predict(latents)["value"], latents, {}, dream)

    def _dream(self, latent: Tensor, steps: int) -> Row:
        """Imagination from latents (N, L) with the policy's most likely actions, (N, H, ...)."""
        if not steps:
            return {}
        moments: dict[str, list[Tensor]] = {"action": [], "latent": [], "reward": []}
        for _ in range(steps):
            policy = self.policy(latent)
            latent, reward = self.model.step(latent, policy.mode().flatten(1))
            for key, value in zip(moments, (policy.mode(), latent, reward), strict=True):
                moments[key].append(value)
        found = {key: torch.stack(values, 1).cpu().numpy() for key, values in moments.items()}
        latents = {"latent": found["latent"], "reward": found["reward"]}
        return {"action": found["action"], **self.predict(latents), "latent/latent": found["latent"]}
