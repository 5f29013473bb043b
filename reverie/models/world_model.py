"""The world model of Dreamer: encoder, RSSM, decoder, and heads for reward and continuation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reverie.core.config import ComponentConfig
from reverie.core.specs import ActionSpec, Specs
from reverie.models.gaussian_rssm import GaussianRSSM
from reverie.models.latent import Decision, Latent, Policy, Posterior, Trajectory
from reverie.models.observation_codec import CodecConfig, Decoder, Encoder
from reverie.models.rssm import RSSM, RSSMConfig
from reverie.nets.layers import OneHot
from reverie.nets.one_hot import Features
from reverie.nets.two_hot import BinaryHead, HeadConfig, ScalarHead, ScalarHeadConfig, in_chunks

Tensors = Mapping[str, Tensor]


class WorldModelConfig(ComponentConfig):
    """A recurrent state-space model with its encoder, decoder and heads."""

    kind: str = "rssm"
    rssm: RSSMConfig = RSSMConfig()
    """The latent dynamics."""
    encoder: CodecConfig = CodecConfig()
    """From observations to tokens."""
    decoder: CodecConfig = CodecConfig()
    """From latents back to observations."""
    reward: ScalarHeadConfig = ScalarHeadConfig()
    """Predicts the reward."""
    continuation: HeadConfig = HeadConfig()
    """Predicts the probability that the episode goes on, times the discount."""


class Prediction(NamedTuple):
    """What the heads predict for features (..., F)."""

    reward: Tensor  # (...)
    continuation: Tensor  # (...), discount included


class RSSMWorldModel(nn.Module):
    """Encoder, RSSM, decoder and heads. ``losses`` compares its predictions with rows."""

    Config = WorldModelConfig

    def __init__(self, config: WorldModelConfig, specs: Specs) -> None:
        super().__init__()
        self.config = config
        self.action_input = ActionInput(specs.action)
        self.encoder = Encoder(config.encoder, specs.observations)
        rssm = RSSM if config.rssm.latents == "categorical" else GaussianRSSM
        is_discrete = specs.action.kind == "discrete"
        self.rssm = rssm(config.rssm, self.action_input.width, self.encoder.width, is_discrete)
        self.features = self.rssm.features
        self.decoder = Decoder(config.decoder, specs.observations, config.rssm)
        self.reward = ScalarHead(config.reward, self.features)
        self.continuation = BinaryHead(config.continuation, self.features)

    def initial(self, count: int) -> Latent:
        """The latents (count, ...) before an episode."""
        return self.rssm.initial(count)

    def observe(self, latent: Latent, rows: Tensors, noise: Tensor) -> Posterior:
        """Update ``latent`` (B, ...) with rows (B, T), which include ``previous_action``; noise (B, T, S)."""
        actions = self.action_input(rows["previous_action"])
        return self.rssm.observe(latent, self.encoder(rows), actions, rows["is_first"], noise)

    def imagine(self, latent: Latent, policy: Policy, noise: Tensor) -> Trajectory:
        """Imagine H steps from ``latent`` (N, ...) with the policy's actions; noise (H, N, S). No gradient."""
        return _trajectory(*self.rssm.imagine(latent, self._encoding(policy), noise))

    def imagine_with_gradient(self, latent: Latent, policy: Policy, noise: Tensor) -> Trajectory:
        """Like :meth:`imagine`, with gradients through the dynamics and through the policy's encoded actions."""
        return _trajectory(*self.rssm.imagine_with_gradient(latent, self._encoding(policy), noise))

    def _encoding(self, policy: Policy) -> Policy:
        """The policy with encoded actions."""

        def decide(features: Features, step: int) -> Decision:
            decision = policy(features, step)
            if decision.encoded is not None:
                return decision
            return decision._replace(encoded=self.action_input(decision.action))

        return decide

    def predict(self, features: Features) -> Prediction:
        """Expected reward and continuation (...)."""
        return Prediction(self.predict_reward(features), self.predict_continuation(features))

    def predict_reward(self, features: Features) -> Tensor:
        return in_chunks(lambda chunk: self.reward(chunk).mean(), features)

    def predict_continuation(self, features: Features) -> Tensor:
        return in_chunks(lambda chunk: self.continuation(chunk).sigmoid(), features)

    def decode(self, latent: Latent) -> dict[str, Tensor]:
        """Observations (...) in the form of the env. No gradient."""
        return self.decoder.observations(latent)

    def split(self, features: Tensor) -> Latent:
        """The latent that features (..., F) consist of."""
        return Latent(*features.split([self.config.rssm.deter, self.rssm.width], -1))

    def losses(self, posterior: Posterior, rows: Tensors, discount: float, free_nats: float) -> dict[str, Tensor]:
        """Prediction, dynamics and representation losses per row (B, T). Hafner et al. 2023, Eq. 3."""
        latent, params = posterior
        features = latent.features
        dynamics, representation = self.rssm.kl_losses(params, latent.deter, free_nats)
        continues = (~rows["terminated"]).float() * discount
        return {
            "dynamics": dynamics,
            "representation": representation,
            "reconstruction": self.decoder.loss(latent, rows),
            "reward": self.reward(features).loss(rows["reward"])[0],
            "continuation": BinaryHead.loss(self.continuation(features), continues),
        }


def _trajectory(features: Features, decisions: list[Decision]) -> Trajectory:
    outputs = [decision.output for decision in decisions if decision.output is not None]
    actions = torch.stack([decision.action for decision in decisions])
    return Trajectory(features, actions, torch.cat(outputs) if outputs else None)


class ActionInput(nn.Module):
    """Actions (..., *shape) to vectors (..., A): continuous ones unchanged, discrete ones one-hot."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.shape_length = len(action.shape)
        self.one_hot = OneHot(action.classes) if action.classes else None
        self.parts = nn.ModuleList(map(ActionInput, action.parts))
        self.widths = [part.width for part in action.parts]
        self.part_shapes = [part.shape for part in action.parts]
        self.width = action.size

    def forward(self, action: Tensor) -> Tensor:
        leading = action.shape[: action.ndim - self.shape_length]
        if self.widths:
            columns = zip(self.parts, self.part_shapes, action.split(self.widths, -1), strict=True)
            return torch.cat([part(own.reshape(*leading, *shape)) for part, shape, own in columns], -1)
        flat = action.reshape(leading.numel(), -1)
        return (flat if self.one_hot is None else self.one_hot(flat.long())).view(*leading, self.width)
