"""PlaNet: learn a world model from replay, and act by planning in it. There is no policy and no value.

Hafner et al. 2019, "Learning Latent Dynamics for Planning from Pixels", with the values of its released code. Equation
numbers are those of the paper.

Departures: the layers of today's Dreamer around the Gaussian RSSM; symlog of vectors; images keep all their bits; the
image decoder starts at the mean brightness of the first batch; the model also predicts whether the episode goes on
(unless ``loss_weights.continuation`` is 0); sequences may cross episode ends; discrete actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from reverie.algos.planet_agent import PlaNetAgent
from reverie.algos.sequences import load_sequences
from reverie.backend import DEFAULT, Backend, module_state
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.contracts import Traits
from reverie.core.reads import Read, Window
from reverie.core.schedule import Rate, constant
from reverie.core.specs import Specs
from reverie.core.types import Batch, Clock, State, Update
from reverie.functional.gaussian import kl_divergence
from reverie.models.latent import Latent, Posterior
from reverie.models.observation_codec import CodecConfig
from reverie.models.rssm import RSSMConfig
from reverie.models.world_model import WorldModelConfig
from reverie.nets.joint_step import minimise_jointly
from reverie.nets.module_norms import ModuleNorms
from reverie.nets.optim import Adam, FlatOptimizer, Loss
from reverie.nets.two_hot import BinaryHead, HeadConfig, ScalarHeadConfig
from reverie.planners.cem import CEM


class LossWeights(Config):
    """Weights of the losses."""

    reconstruction: float = Field(0.5, ge=0)
    """Squared error of the decoder. 0.5: observations are normal variables with a standard deviation of 1."""
    reward: float = Field(10.0, ge=0)
    """Half the squared error of the reward."""
    continuation: float = Field(1.0, ge=0)
    """Prediction of whether the episode goes on. 0: plans never end, as in the paper."""
    divergence: float = Field(1.0, ge=0)
    """KL divergence of posterior and prior."""
    overshooting: float = Field(1.0, ge=0)
    """Latent overshooting, if ``overshooting_steps`` is above 1."""


class PlaNetConfig(ComponentConfig):
    """PlaNet."""

    built_once = frozenset({"model"})

    kind: str = "planet"
    learning_rate: Rate = constant(1e-3)
    """Learning rate of the world model."""
    max_grad_norm: float | None = Field(1000.0, gt=0)
    """Largest norm of the gradient."""
    batch_size: int = Field(50, ge=1)
    """Sequences per update."""
    batch_length: int = Field(50, ge=2)
    """Rows of each sequence. They start from the initial latent."""
    free_nats: float = Field(3.0, ge=0)
    """KL divergence between posterior and prior below which its loss has no gradient."""
    overshooting_steps: int = Field(1, ge=1)
    """Latent overshooting: how many steps ahead priors are trained to predict posteriors. 1: only the next one, as in
    the released code."""
    exploration_noise: float = Field(0.3, ge=0)
    """While collecting: standard deviation of the noise added to continuous actions. With discrete ones, it is the
    probability of a random action."""
    loss_weights: LossWeights = LossWeights()
    """Weights of the losses."""
    model: Annotated[WorldModelConfig, Component("model")] = WorldModelConfig(
        rssm=RSSMConfig(latents="gaussian", deter=200, hidden=200, stoch=30, blocks=1, prior_layers=1),
        encoder=CodecConfig(layers=2, units=200, depth=32, multipliers=(1, 2, 4, 8), strided=True),
        decoder=CodecConfig(layers=2, units=200, depth=32, multipliers=(1, 2, 4, 8), strided=True),
        reward=ScalarHeadConfig(layers=3, units=300, output="normal"),
        continuation=HeadConfig(layers=1, units=200),
    )
    """World model: predicts latents, rewards and continuation."""
    planner: Annotated[ComponentConfig, Component("planner")] = CEM.Config()
    """Chooses actions: cem or mppi."""
    optimizer: Annotated[ComponentConfig, Component("optimizer")] = Adam.Config(epsilon=1e-4)
    """Update rule of the world model."""


class SequenceBatch(NamedTuple):
    """B sequences of T rows on the device, with all noise that the loss needs."""

    rows: dict[str, Tensor]  # (B, T, ...)
    noise: Tensor  # (B, T, S): for the posteriors
    overshooting_noise: Tensor | None  # (D, B, T, S): for priors d + 1 steps after each row


class PlaNet(PlaNetAgent):
    """For all observations, and for discrete, multi-discrete, multi-binary and bounded continuous actions."""

    Config = PlaNetConfig
    traits = Traits(
        hooks=("update", "update_world_model"), unbounded_actions=False, observes=True,
        actions=("discrete", "continuous", "multi_discrete", "multi_binary"),
    )  # fmt: skip

    def __init__(
        self, config: PlaNetConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        super().__init__(config, specs, rng, backend)
        optimizer: type[FlatOptimizer] = registry.load("optimizer", config.optimizer.kind)
        self.optimizer = optimizer(config.optimizer, self.model.parameters())
        modules = [
            "encoder",
            "rssm",
            "decoder",
            "reward",
            *(["continuation"] if config.loss_weights.continuation else []),
        ]
        self.module_norms = ModuleNorms({name: getattr(self.model, name) for name in modules})

    @property
    def reads(self) -> dict[str, Read]:
        return dict.fromkeys(self.traits.hooks, Window(self.config.batch_size, self.config.batch_length, context=1))

    # ---------------------------------------------------------------- updates

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """One gradient step of the world model, on rows (B, T + 1); the first row only gives its action."""
        sequences = self.make_sequences(batch, rng)
        if self.optimizer.steps == 0:
            self.model.decoder.start_at_mean([sequences.rows])
        result = minimise_jointly(
            {"model": self.optimizer}, self.loss, [sequences], {"model": self.config.learning_rate.at(clock)},
            self.config.max_grad_norm, self.module_norms,
        )  # fmt: skip
        return Update(result.metrics | self.model.rssm.usage(result.aux["params"]))

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """The same as :meth:`update`, for phases of algorithms that have a policy, too."""
        return self.update(batch, clock, rng)

    def make_sequences(self, batch: Batch, rng: np.random.Generator) -> SequenceBatch:
        """The batch on the device, with noise."""
        _, rows = self.prepare_batch(batch)
        shape, steps = rows["is_first"].shape, self.config.overshooting_steps
        noise = self.latent_noise(rng, *shape)
        return SequenceBatch(rows, noise, self.latent_noise(rng, steps, *shape) if steps > 1 else None)

    def prepare_batch(self, batch: Batch) -> tuple[Latent, dict[str, Tensor]]:
        """The initial latents (B, ...), from which sequences start, and the rows (B, T)."""
        _, rows = load_sequences(batch, self.backend)
        return self.model.initial(len(rows["is_first"])), rows

    # ---------------------------------------------------------------- objective

    def loss(self, batch: SequenceBatch) -> Loss:
        """The negative variational bound on B sequences of T rows (Eq. 3), or that of several steps (Eq. 7)."""
        rows, config = batch.rows, self.config
        post = self.model.observe(self.model.initial(len(rows["is_first"])), rows, batch.noise)
        losses = self.model_losses(post, rows)  # (B, T)
        if batch.overshooting_noise is not None:
            losses["overshooting"] = self.overshooting_loss(post, rows, batch.overshooting_noise)
        weight = rows.get("weight", torch.ones_like(rows["reward"]))
        means = {name: (loss * weight).mean() for name, loss in losses.items()}
        total = torch.stack([getattr(config.loss_weights, name) * mean for name, mean in means.items()]).sum()
        return Loss(total, {f"loss_{name}": mean for name, mean in means.items()}, {"params": post.params})

    def model_losses(self, post: Posterior, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Losses per row (B, T) of what the model says about the row that it has just seen."""
        features = post.latent.features
        divergence = kl_divergence(post.params, self.model.rssm.prior(post.latent.deter))
        return {
            "reconstruction": self.model.decoder.loss(post.latent, rows),
            "reward": self.model.reward(features).loss(rows["reward"])[0],
            "continuation": BinaryHead.loss(self.model.continuation(features), (~rows["terminated"]).float()),
            "divergence": divergence.clamp(min=self.config.free_nats),
        }

    def overshooting_loss(self, post: Posterior, rows: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Divergence (B, T) of posteriors from priors that were imagined 2 to D steps ahead, over D: Eq. 7.

        Those posteriors are targets without gradient; the ones from which imagination starts have one. A distance that
        reaches over the start of an episode, or of the sequence, counts as 0.
        """
        is_first, actions = rows["is_first"], self.model.action_input(rows["previous_action"])
        total, latent, is_same_episode = torch.zeros_like(rows["reward"]), post.latent, torch.ones_like(is_first)
        for distance in range(1, min(len(noise), is_first.shape[1] - 1) + 1):
            start = Latent(*(x[:, :-1].flatten(0, 1) for x in latent))  # all rows with a row this far ahead
            action, own_noise = (x[:, distance:].flatten(0, 1) for x in (actions, noise[distance - 1]))
            imagined, params = self.model.rssm.imagine_step(start, action, own_noise)
            latent = Latent(*(x.unflatten(0, (len(is_first), -1)) for x in imagined))  # (B, T - distance, ...)
            is_same_episode = is_same_episode[:, :-1] & ~is_first[:, distance:]
            if distance > 1:
                target = post.params[:, distance:].detach()
                divergence = kl_divergence(target, params.unflatten(0, target.shape[:2]))
                divergence = divergence.clamp(min=self.config.free_nats) * is_same_episode
                total = total + F.pad(divergence, (distance, 0))
        return total / len(noise)

    # ---------------------------------------------------------------- state

    def state(self) -> State:
        return {"model": module_state(self.model), "optimizer": self.optimizer.state()}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.optimizer.load_state(state["optimizer"])
