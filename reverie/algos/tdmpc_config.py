"""Settings of TD-MPC. Defaults are those of the reference for states."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.schedule import Rate, Schedule, constant
from reverie.models.told import TOLD
from reverie.nets.optim import Adam
from reverie.planners.mppi import MPPI

SCHEDULE_STEPS = 25_000
"""Env steps over which plans get longer and their noise smaller."""


class TDMPCLossWeights(Config):
    """Weights of the losses of world model and Q-functions."""

    consistency: float = 2.0
    """Predicted latents against those of the target encoder."""
    reward: float = 0.5
    """Prediction of rewards."""
    value: float = 0.1
    """Both Q-functions against their targets."""


class TDMPCConfig(ComponentConfig):
    """TD-MPC."""

    built_once = frozenset({"model", "noise_std", "noise_clip"})

    kind: str = "tdmpc"
    learning_rate: Rate = constant(1e-3)
    """Step size of all optimisers."""
    max_grad_norm: float = Field(10.0, gt=0)
    """Largest norm of the gradient of world model and Q-functions together, and of that of the policy."""
    batch_size: int = Field(512, ge=1)
    """Sequences per update."""
    train_horizon: int = Field(5, ge=1)
    """Steps that the model is unrolled from the first row of each sequence."""
    decay: float = Field(0.5, gt=0, le=1)
    """Each unrolled step counts this much less than the one before."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount."""
    loss_limit: float = Field(1e4, gt=0)
    """Losses of a sequence above this have no gradient."""
    noise_std: float = Field(0.05, gt=0)
    """Standard deviation of the noise on the policy's actions, in updates, plans and while collecting."""
    noise_clip: float = Field(0.3, gt=0)
    """Largest noise on the policy's actions."""
    target_rate: float = Field(0.01, gt=0, le=1)
    """Step of the target encoder and the target Q-functions towards the learned ones."""
    target_every: int = Field(2, ge=1)
    """Updates from one step of the targets to the next."""
    image_shift: int = Field(4, ge=0)
    """Largest random shift of images in updates, in pixels."""
    loss_weights: TDMPCLossWeights = TDMPCLossWeights()
    """Weights of the losses."""
    model: Annotated[ComponentConfig, Component("model")] = TOLD.Config()
    """The world model."""
    planner: Annotated[ComponentConfig, Component("planner")] = MPPI.Config(
        horizon=5, samples=537, policy_samples=25, momentum=0.1,
        min_std=Schedule.model_validate({"start": 0.5, "end": 0.05, "to": SCHEDULE_STEPS}),
        growing_horizon=Schedule.model_validate({"start": 1, "end": 5, "to": SCHEDULE_STEPS}),
    )  # fmt: skip
    """Chooses actions. kind none: the policy acts alone."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-8)
    """Update rule of all networks."""
