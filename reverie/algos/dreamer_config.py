"""Settings of Dreamer. Defaults are those of DreamerV3; the presets ``dreamer_v1`` and ``dreamer_v2`` change them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reverie.agents.latent_actor import ActorConfig
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.schedule import Rate, constant
from reverie.models.world_model import WorldModelConfig
from reverie.nets.laprop import LaProp
from reverie.nets.scaling import PercentileScale
from reverie.nets.two_hot import ScalarHeadConfig
from reverie.planners.no_planner import NoPlanner


class LossWeights(Config):
    """Weights of the losses."""

    reconstruction: float = 1.0
    """Reconstruction of observations."""
    reward: float = 1.0
    """Prediction of rewards."""
    continuation: float = 1.0
    """Prediction of whether the episode goes on."""
    dynamics: float = 1.0
    """KL divergence that trains the prior."""
    representation: float = 0.1
    """KL divergence that trains the posterior."""
    policy: float = 1.0
    """Policy loss on imagined trajectories."""
    value: float = 1.0
    """Value loss on imagined trajectories."""
    replay_value: float = 0.3
    """Value loss on replayed rows."""


class CriticConfig(ScalarHeadConfig):
    """Value network."""

    layers: int = Field(3, ge=0)
    """Fully connected layers."""


class DreamerConfig(ComponentConfig):
    """DreamerV3."""

    built_once = frozenset({"model", "actor", "critic"})

    kind: str = "dreamer"
    learning_rate: Rate = constant(4e-5)
    """Learning rate of world model, policy and value."""
    behaviour_learning_rate: Rate | None = None
    """Learning rate of policy and value, if it differs."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Largest norm of the gradient of the model, and of that of policy and value. The optimiser may clip as well."""
    batch_size: int = Field(16, ge=1)
    """Sequences per update."""
    batch_length: int = Field(64, ge=2)
    """Rows of each sequence."""
    replay_context: bool = True
    """Start sequences from the latent stored with the row before them, instead of from the initial latent."""
    horizon: int = Field(333, ge=1)
    """Effective horizon in steps: the discount is 1 - 1 / horizon."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Lambda of the lambda-returns: 1 uses rewards only, 0 bootstraps after one step."""
    imagine_steps: int = Field(15, ge=1)
    """Length of the trajectories imagined from every replayed row."""
    entropy_weight: float = Field(3e-4, ge=0)
    """Weight of the policy's entropy in its objective."""
    reparameterised_weight: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = 0.0
    """How much of the policy gradient goes through the dynamics. 0: REINFORCE. 1: gradients of the imagined returns, by
    reparameterisation. Values in between mix both. ``auto``: 1 if all actions are continuous, else 0."""
    exploration_noise: float = Field(0.0, ge=0)
    """Standard deviation of the noise added to continuous actions while collecting. Mixed actions get none."""
    reward_transform: Literal["none", "tanh"] = "none"
    """Transform of rewards before training; ``tanh`` squashes them."""
    free_nats: float = Field(1.0, ge=0)
    """KL divergence between posterior and prior below which its loss has no gradient."""
    image_bias_init: Literal["mean", "half"] = "mean"
    """Initial bias of the image decoder: mean brightness of the first batch, or half brightness as in the reference.
    With ``half``, dark or bright images can make latents settle on one class before they carry any information."""
    target_rate: float = Field(0.02, gt=0, le=1)
    """Step of the target critic's moving average."""
    target_every: int = Field(1, ge=1)
    """Updates between two steps of the target critic."""
    target_regulariser: float = Field(1.0, ge=0)
    """Weight of the loss that keeps values close to those of the target critic."""
    bootstrap_from_target: bool = False
    """Compute returns and advantages with the values of the target critic."""
    replay_value_gradient: bool = True
    """Let the value loss on replayed rows train the world model as well."""
    loss_weights: LossWeights = LossWeights()
    """Weights of the losses."""
    model: Annotated[WorldModelConfig, Component("model")] = WorldModelConfig()
    """World model: predicts latents, rewards and continuation."""
    actor: ActorConfig = ActorConfig()
    """Policy network."""
    critic: CriticConfig = CriticConfig()
    """Value network."""
    return_scale: Annotated[ComponentConfig, Component("return_scale")] = PercentileScale.Config()
    """Normaliser of returns: percentile, deviation or none."""
    planner: Annotated[ComponentConfig, Component("planner")] = NoPlanner.Config()
    """Acts by planning in the world model with the critic as the value of the last state: cem or mppi. none: the policy
    acts."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = LaProp.Config()
    """Update rule of world model, policy and value."""

    @property
    def discount(self) -> float:
        return 1 - 1 / self.horizon
