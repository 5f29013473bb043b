"""Looking into Dreamer from outside: predictions, imagined trajectories, inspection.

Nothing here changes the agent. Evaluations, reports and notebooks use it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from reverie.agents.inspection import describe_policy
from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import ImaginationNoise, prepare, transform_rewards
from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.rssm_agent import RSSMAgent
from reverie.core.types import Array, Batch, Clock, Inspection, Row
from reverie.models.latent import Latent, Policy, Trajectory
from reverie.nets.one_hot import to_dense

_LARGEST_TANH = 1 - 1e-6


class DreamerInspection(RSSMAgent):
    """Methods of Dreamer that show its world model, with its values."""

    config: DreamerConfig
    actor: LatentActor
    critic: LatentCritic
    has_critic: bool
    sampling_policy: Callable[[Tensor], Policy]
    imagination_noise: Callable[[np.random.Generator, int, int], ImaginationNoise]

    def prepare_batch(self, batch: Batch) -> tuple[Latent, dict[str, Tensor]]:
        return prepare(batch, self.model, self.config, self.backend)

    def prepare_rows(self, rows: Batch) -> dict[str, Tensor]:
        return transform_rewards(self.backend.to_tensors(rows), self.config)

    @torch.no_grad()
    def predict(self, latents: Row) -> Row:
        """In the units of the env; ``value`` in those of the return that the policy maximises."""
        features = self.to_latent(latents).features
        reward, continuation = self.model.predict(features)
        if self.config.reward_transform == "tanh":
            reward = reward.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
        probability = (continuation / self.config.discount).clamp(max=1)
        found = {"reward": reward, "continuation": probability}
        if self.has_critic:
            found["value"] = self.critic.mean(features)
        return {key: value.cpu().numpy() for key, value in found.items()}

    @torch.no_grad()
    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        latents = self.observe(rows, rng).latents
        latent, shape = self.to_latent(latents), rows["is_first"].shape
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
        latents = self.to_numpy(self.imagined_latent(imagined))
        return {
            "action": imagined.actions.transpose(0, 1).cpu().numpy(), **self.predict(latents),
            **{f"latent/{key}": values for key, values in latents.items()}, **(self.decode(latents) if decode else {}),
        }  # fmt: skip

    @torch.no_grad()
    def imagine_trajectory(
        self, start: Latent, rng: np.random.Generator, actions: Array | None = None, steps: int = 15
    ) -> Trajectory:
        """Imagine from N latents: with given actions (H, N, *shape), or ``steps`` steps with the policy's actions."""
        if actions is not None:
            return self.imagine_actions(start, actions, rng)
        noise = self.imagination_noise(rng, steps, len(start.deter))
        imagined = self.model.imagine(start, self.sampling_policy(noise.action), noise.latent)
        return Trajectory(to_dense(imagined.features), imagined.actions)
