"""What can be set about Dreamer. Defaults are DreamerV3's; its forms v1 and v2 are presets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reverie.agents.latent_actor import ActorConfig
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.schedule import Rate, constant
from reverie.models.world_model import WorldModel
from reverie.nets.laprop import LaProp
from reverie.nets.scaling import PercentileScale
from reverie.nets.two_hot import ScalarHeadConfig


class LossWeights(Config):
    """How much each loss counts."""

    reconstruction: float = 1.0
    """Of the observations."""
    reward: float = 1.0
    """Of the rewards."""
    continuation: float = 1.0
    """Of whether episodes go on."""
    dynamics: float = 1.0
    """Pulls the prior to the posterior."""
    representation: float = 0.1
    """Pulls the posterior to the prior."""
    policy: float = 1.0
    """Of the policy, in dreams."""
    value: float = 1.0
    """Of the value, in dreams."""
    replay_value: float = 0.3
    """Of the value, on replayed rows."""


class CriticConfig(ScalarHeadConfig):
    """The value's network."""

    layers: int = Field(3, ge=0)
    """Fully connected layers."""


class DreamerConfig(ComponentConfig):
    """DreamerV3."""

    built_once = frozenset({"model", "actor", "critic"})

    kind: str = "dreamer"
    learning_rate: Rate = constant(4e-5)
    """Step size of the optimiser, for all parts."""
    behaviour_learning_rate: Rate | None = None
    """Another step size for policy and value."""
    max_grad_norm: float | None = Field(None, gt=0)
    """Bound of the gradient of the model, and of that of policy and value; the optimiser may clip besides."""
    batch_size: int = Field(16, ge=1)
    """Stretches of rows per update."""
    batch_length: int = Field(64, ge=2)
    """Rows of each stretch."""
    replay_context: bool = True
    """Start stretches from the latent that was stored with the row before them, instead of from nothing."""
    horizon: int = Field(333, ge=1)
    """Steps that matter: the discount is 1 - 1 / horizon."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """How far returns lean on rewards instead of values."""
    imagine_steps: int = Field(15, ge=1)
    """Length of the dreams that begin at every replayed row."""
    entropy_weight: float = Field(3e-4, ge=0)
    """How much the policy is rewarded for staying open."""
    dynamics_share: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = 0.0
    """How the policy learns: 0 makes actions with good returns more likely (reinforce), 1 follows the slope of the
    returns back through the dream (dynamics), anything between mixes both; auto is 1 if all actions are continuous,
    else 0."""
    explore_noise: float = Field(0.0, ge=0)
    """Deviation of the noise added to continuous actions while collecting; mixed actions get none."""
    reward_transform: Literal["none", "tanh"] = "none"
    """What is done to rewards before anything learns from them."""
    free_nats: float = Field(1.0, ge=0)
    """Divergence between prior and posterior that costs nothing."""
    images_start: Literal["mean", "half"] = "mean"
    """What the untrained decoder shows: the mean brightness of the images in the first batch, or half brightness as in
    the reference, where dark or bright images make latents settle on one class before they tell anything."""
    slow_rate: float = Field(0.02, gt=0, le=1)
    """How far the slow value moves towards the value with every update."""
    slow_every: int = Field(1, ge=1)
    """Updates between two moves of the slow value."""
    slow_weight: float = Field(1.0, ge=0)
    """How much the value is held to its slow copy."""
    slow_targets: bool = False
    """Take the values that returns lean on from the slow copy."""
    replay_value_gradient: bool = True
    """Let the value's error on replayed rows teach the model too."""
    loss_weights: LossWeights = LossWeights()
    """How much each loss counts."""
    model: Annotated[ComponentConfig, Component("model")] = WorldModel.Config()
    """The world model."""
    actor: ActorConfig = ActorConfig()
    """The policy's network."""
    critic: CriticConfig = CriticConfig()
    """The value's network."""
    return_scale: Annotated[ComponentConfig, Component("return_scale")] = PercentileScale.Config()
    """How returns are brought to one scale: percentile, deviation or none."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = LaProp.Config()
    """The optimiser."""

    @property
    def discount(self) -> float:
        return 1 - 1 / self.horizon
