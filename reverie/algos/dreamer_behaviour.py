"""How Dreamer's policy and value learn: in dreams that begin at every replayed row, the value also on the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from reverie import backend
from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import DreamNoise, Part, latent_noise
from reverie.algos.dreamer_config import DreamerConfig
from reverie.core.types import is_last
from reverie.data.rows import transitions
from reverie.functional.returns import imagined_return, td_lambda_return
from reverie.models.rssm import Latent
from reverie.models.world_model import Dream, WorldModel
from reverie.nets.choices import Features
from reverie.nets.layers import frozen
from reverie.nets.two_hot import Normal, TwoHot

Losses = dict[str, Tensor]


class Judged(NamedTuple):
    """What a dream of H steps from N rows is worth; no gradients."""

    reward: Tensor  # (H, N): at the state that each step leads to
    continuation: Tensor  # (H + 1, N)
    expected: Tensor  # (H + 1, N): values
    returns: Tensor  # (H, N)


@dataclass(frozen=True)
class Behaviour:
    """Policy and value, the model that they dream with, and how they are to learn at this moment."""

    config: DreamerConfig
    model: WorldModel
    actor: LatentActor
    critic: LatentCritic
    return_scale: nn.Module

    @property
    def dynamics_share(self) -> float:
        """The setting, or what ``auto`` stands for with these actions."""
        share = self.config.dynamics_share
        return float(self.actor.action.kind == "continuous") if share == "auto" else share

    def draw_noise(self, rng: np.random.Generator, steps: int, count: int) -> DreamNoise:
        latent = latent_noise(self.model, rng, steps, count)
        return DreamNoise(latent, self.action_noise(rng, steps, count))

    def action_noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        return torch.as_tensor(self.actor.draw_noise(rng, *leading), device=backend.device())

    def losses(self, latent: Latent, part: Part) -> tuple[Losses, dict[str, Tensor]]:
        """Losses in dreams from every row of a part and on its rows; and numbers to watch."""
        learnt = self._dream_to_learn(latent, part)
        starts_weight = part.rows["weight"].flatten() if "weight" in part.rows else None
        losses, returns, metrics = self.dream_losses(*learnt, part.share == 1, starts_weight)
        if self.config.loss_weights.replay_value:
            starts = returns[0].view(part.rows["is_first"].shape)
            losses["replay_value"] = self.replay_loss(latent.features, part.rows, starts)
        return losses, metrics

    @torch.no_grad()
    def returns(self, latent: Latent, part: Part) -> Tensor:
        """The returns (H, N) of which :meth:`losses` learns; only those of dreams that count."""
        dream, *_ = self._dream_to_learn(latent, part)
        returns = self._judge(dream, self.critic(dream.seen[:-1])).returns
        return returns[:, part.rows["weight"].flatten() > 0] if "weight" in part.rows else returns

    def _dream_to_learn(self, latent: Latent, part: Part) -> tuple[Dream, Tensor, Tensor | None]:
        assert part.dreams is not None
        if self.dynamics_share:
            return self.dream_through(latent.flatten(), part.dreams)
        return *self.dream(latent.flatten(), part.dreams), None

    def dream(self, start: Latent, noise: DreamNoise) -> tuple[Dream, Tensor]:
        """On from N latents, as the policy acts; and what its network said (H * N, ...), with its gradient."""
        said: list[Tensor] = []
        learns = torch.is_grad_enabled()

        def act(features: Features, step: int) -> Tensor:
            with torch.set_grad_enabled(learns):
                said.append(self.actor.compute(features))
            return self.actor.distribution(said[-1].detach()).sample(noise.action[step])

        return self.model.imagine(start, act, noise.latent), torch.cat(said)

    def dream_through(self, start: Latent, noise: DreamNoise) -> tuple[Dream, Tensor, Tensor]:
        """The same, and returns (H, N) with their slope along what the policy did; model and value stand still."""
        said: list[Tensor] = []
        actions: list[Tensor] = []

        def act(features: Tensor, step: int) -> Tensor:
            said.append(self.actor.compute(features.detach()))
            policy = self.actor.distribution(said[-1])
            actions.append(policy.sample(noise.action[step]).detach())
            return policy.through(noise.action[step])

        with frozen(self.model, self.critic):
            features = self.model.dream(start, act, noise.latent)
            prediction = self.model.predict_through(features[1:])
            critic = self.critic.slow if self.config.slow_targets else self.critic.value
            values = critic(features[1:]).expectation()
            returns = imagined_return(prediction.reward.T, values.T, prediction.continuation.T, self.config.gae_lambda)
        return Dream(features.detach(), torch.stack(actions)), torch.cat(said), returns.T

    def dream_losses(
        self,
        dream: Dream,
        said: Tensor,
        slope: Tensor | None = None,
        is_whole: bool = True,
        starts_weight: Tensor | None = None,
    ) -> tuple[Losses, Tensor, dict[str, Tensor]]:
        """Losses (H, N), returns (H, N) and metrics; nothing of it reaches the model.

        ``said`` is what the policy's network made of the dream (H * N, ...), with its gradient. ``slope`` are the same
        returns with a gradient, if the policy is to follow it. The scale of returns learns from dreams of a whole
        batch; of one in parts it knows already. ``starts_weight`` (N,), of mean 1 over the batch, is 0 for dreams that
        do not count.
        """
        features = dream.seen
        value = self.critic(features[:-1])
        judged = self._judge(dream, value)
        if is_whole:
            counted = judged.returns if starts_weight is None else judged.returns[:, starts_weight > 0]
            self.return_scale.update(counted)
        with torch.no_grad():
            _, scale = self.return_scale()
            advantage = (judged.returns - judged.expected[:-1]) / scale
            weight = judged.continuation.cumprod(0)[:-1]
            weight = weight if starts_weight is None else weight * starts_weight
            slow = self.critic.slow_mean(features[:-1])
        policy = self.actor.distribution(said)
        log_prob = policy.log_prob(dream.actions.flatten(0, 1)).view_as(advantage)
        entropy = policy.entropy().view_as(advantage)
        gain = log_prob * advantage
        if slope is not None:
            gain = torch.lerp(gain, slope / scale, self.dynamics_share)
        to_return, to_slow = value.loss(judged.returns, slow)
        losses = {
            "policy": -weight * (gain + self.config.entropy_weight * entropy),
            "value": weight * (to_return + self.config.slow_weight * to_slow),
        }
        metrics = {
            "entropy": entropy, "advantage_size": advantage.abs(), "dream_reward": judged.reward,
            "dream_continuation": judged.continuation, "dream_return": judged.returns, "dream_value": judged.expected,
        }  # fmt: skip
        if starts_weight is not None:
            metrics = {name: values * starts_weight for name, values in metrics.items()}
        means = {name: values.mean() for name, values in metrics.items()}
        return losses, judged.returns, {**means, "return_scale": scale}

    @torch.no_grad()
    def _judge(self, dream: Dream, value: TwoHot | Normal) -> Judged:
        """``value`` is that of all features but the last."""
        features = dream.seen
        if self.config.slow_targets:
            expected = self.critic.slow_mean(features)
        else:
            expected = torch.cat([value.mean(), self.critic.mean(features[-1:])])
        reward, going_on = self.model.predict_reward(features[1:]), self.model.predict_continuation(features)
        returns = imagined_return(reward.T, expected[1:].T, going_on[1:].T, self.config.gae_lambda).T
        return Judged(reward, going_on, expected, returns)

    def replay_loss(self, features: Tensor, rows: Mapping[str, Tensor], starts: Tensor) -> Tensor:
        """The value's error on the rows themselves (B, T - 1); ``starts`` are returns dreamt from each row (B, T)."""
        now, then, weight = transitions({**rows, "features": features, "dreamt": starts})
        returns = td_lambda_return(
            then["reward"], then["dreamt"], then["terminated"], is_last(then), weight, self.config.discount,
            self.config.gae_lambda,
        )  # fmt: skip
        if "weight" in rows:
            weight = weight * now["weight"]
        seen = now["features"] if self.config.replay_value_gradient else now["features"].detach()
        to_return, to_slow = self.critic(seen).loss(returns, self.critic.slow_mean(seen))
        return weight * (to_return + self.config.slow_weight * to_slow)
