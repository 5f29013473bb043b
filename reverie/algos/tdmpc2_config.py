"""Settings of TD-MPC2. Defaults are those of the reference with 5 million weights."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.schedule import Rate, constant
from reverie.models.latent_mlp import LatentMLP
from reverie.nets.optim import Adam
from reverie.nets.scaling import RangeScale
from reverie.planners.mppi import MPPI


class TDMPC2LossWeights(Config):
    """Weights of the losses of world model and Q-functions."""

    consistency: float = 20.0
    """Predicted latents against those of the encoder."""
    reward: float = 0.1
    """Prediction of rewards."""
    value: float = 0.1
    """Q-functions against their targets."""
    termination: float = 1.0
    """Prediction of whether the episode terminates."""


class TDMPC2Config(ComponentConfig):
    """TD-MPC2."""

    built_once = frozenset({"model", "num_critics", "dropout", "episodic"})

    kind: str = "tdmpc2"
    learning_rate: Rate = constant(3e-4)
    """Step size of all optimisers."""
    encoder_rate_factor: float = Field(0.3, gt=0)
    """Factor of the encoder's learning rate."""
    max_grad_norm: float = Field(20.0, gt=0)
    """Largest norm of the gradient of world model and Q-functions together, and of that of the policy."""
    batch_size: int = Field(256, ge=1)
    """Sequences per update."""
    train_horizon: int = Field(3, ge=1)
    """Steps that the model is unrolled from the first row of each sequence."""
    decay: float = Field(0.5, gt=0, le=1)
    """Factor of each unrolled step's loss relative to the step before."""
    gamma: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = "auto"
    """Discount; auto: from the time limit of the env, an effective horizon of a fifth of the episode."""
    gamma_low: float = Field(0.95, ge=0, le=1)
    """Smallest discount that auto gives."""
    gamma_high: float = Field(0.995, ge=0, le=1)
    """Largest discount that auto gives, and that of envs without a time limit."""
    num_critics: int = Field(5, ge=1)
    """Q-functions. Two of them, drawn at random, count in targets, in the policy's objective and in plans."""
    dropout: float = Field(0.01, ge=0, lt=1)
    """Probability with which dropout sets a value in the first layer of the Q-functions to zero."""
    target_rate: float = Field(0.01, gt=0, le=1)
    """Step of the target Q-functions towards the Q-functions, at every update."""
    entropy_weight: float = Field(1e-4, ge=0)
    """Weight of the policy's entropy in its objective."""
    episodic: bool = False
    """Whether the model predicts termination, and plans end there. For envs that can terminate."""
    image_shift: int = Field(3, ge=0)
    """Largest random shift of images in updates, in pixels."""
    loss_weights: TDMPC2LossWeights = TDMPC2LossWeights()
    """Weights of the losses."""
    model: Annotated[ComponentConfig, Component("model")] = LatentMLP.Config()
    """The world model."""
    planner: Annotated[ComponentConfig, Component("planner")] = MPPI.Config()
    """Chooses actions. kind none: the policy acts alone."""
    return_scale: Annotated[ComponentConfig, Component("return_scale")] = RangeScale.Config()
    """Scale of the values in the policy's objective."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """Update rule of world model and Q-functions."""
    policy_optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-5)
    """Update rule of the policy."""
