"""The recurrent state-space model with categorical latents (Hafner et al. 2019, 2021, 2023, Eq. 1).

A block-diagonal GRU updates the recurrent part of the latent (``deter``). The stochastic part (``stoch``) is sampled
from the prior, which depends on ``deter`` alone, or from the posterior, which also depends on the observation.

For speed, everything outside the recurrence is computed for all steps at once: projections of actions and observations
before the scan, the prior after it. Noise is passed in, one uniform number per latent variable. ``observe`` and
``imagine`` run fast kernels; ``observe_stepwise`` and ``imagine_with_gradient`` are the same computations, written
plainly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from reverie.core.config import Config
from reverie.core.types import Array, Row
from reverie.functional.categorical import (
    entropy,
    kl_losses,
    log_mix_uniform,
    mix_uniform,
    one_hot,
    sample_one_hot,
    straight_through,
)  # fmt: skip
from reverie.models.imagine_kernel import ImagineKernel
from reverie.models.latent import Decision, Latent, Policy, Posterior
from reverie.models.observe_scan import ScanInputs, ScanWeights, observe_scan
from reverie.nets.backend_module import BackendModule
from reverie.nets.blocks import BlockGRU, Dense, NormedSiLU, Projection, make_dense, make_linear
from reverie.nets.one_hot import Features, OneHotFeatures
from reverie.nets.precision import in_precision

MIN_LOOKUP_COLUMNS = 256
"""One-hot columns from which on summing rows of weights pays: 5 % of an update with 512, a loss with 128."""


class RSSMConfig(Config):
    """Sizes of the recurrent state-space model."""

    deter: int = Field(2048, ge=1)
    """Width of the recurrent part of the latent."""
    hidden: int = Field(256, ge=1)
    """Width of the layers around it."""
    latents: Literal["categorical", "gaussian"] = "categorical"
    """Distribution of the stochastic latent variables."""
    stoch: int = Field(32, ge=1)
    """Number of stochastic latent variables."""
    classes: int = Field(16, ge=2, le=255)
    """Classes of each categorical variable. At most 255: they are stored as bytes, and 0 means no class."""
    blocks: int = Field(8, ge=1)
    """Blocks of the recurrent weights; must divide ``deter``."""
    prior_layers: int = Field(2, ge=1)
    """Layers from ``deter`` to the prior."""
    unimix: float = Field(0.01, ge=0, lt=1)
    """Weight of the uniform distribution that is mixed into every categorical latent."""
    min_std: float = Field(0.1, gt=0)
    """Smallest standard deviation of Gaussian latents."""

    @property
    def width(self) -> int:
        """Columns of ``stoch`` among the features."""
        return self.stoch * (self.classes if self.latents == "categorical" else 1)

    @property
    def outputs(self) -> int:
        """Network outputs that parameterise the distribution of ``stoch``."""
        return self.stoch * (self.classes if self.latents == "categorical" else 2)

    @model_validator(mode="after")
    def _divides(self) -> RSSMConfig:
        if self.deter % self.blocks:
            raise ValueError(f"blocks ({self.blocks}) must divide deter ({self.deter})")
        return self


class RSSM(BackendModule):
    """Latent dynamics over encoded actions and observations."""

    def __init__(self, config: RSSMConfig, actions: int, tokens: int, has_discrete_actions: bool = False) -> None:
        """``has_discrete_actions``: every action is one of the ``actions`` one-hot vectors."""
        super().__init__()
        self.config = config
        self.has_discrete_actions = has_discrete_actions
        deter, hidden = config.deter, config.hidden
        self.width = config.width
        self.features = deter + self.width
        self.from_deter = Dense(deter, hidden)
        self.from_stoch = Dense(self.width, hidden)
        self.from_action = Dense(actions, hidden)
        self.core = BlockGRU(deter, 3 * hidden, config.blocks)
        self.posterior_deter = make_linear(deter, hidden)
        self.posterior_token = Projection(tokens, hidden, deter + tokens)
        self.posterior_deter.weight.data.mul_((deter / (deter + tokens)) ** 0.5)
        self.posterior_hidden = NormedSiLU(hidden)
        self.posterior_output = make_linear(hidden, config.outputs)
        self.prior_layers = make_dense(deter, hidden, config.prior_layers)
        self.prior_output = make_linear(hidden, config.outputs)

    def initial(self, count: int) -> Latent:
        """The latents (count, ...) before an episode."""
        zeros = self.core.own.bias.new_zeros
        return Latent(zeros(count, self.config.deter), zeros(count, self.width))

    # ---------------------------------------------------------------- observing

    def observe(self, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor) -> Posterior:
        """Update ``latent`` (B, ...) with T observations: ``tokens`` (B, T, E), after ``actions`` (B, T, A).

        ``is_first`` (B, T) resets the latent and the action. ``noise`` is (B, T, S).
        """
        keep = (~is_first).to(tokens.dtype).unsqueeze(-1)
        token_inputs = self._project_tokens(tokens) + self.posterior_deter.bias
        action_inputs = self._project_action(actions * keep) + self.core.own.bias
        time_first = (x.transpose(0, 1) for x in (token_inputs, action_inputs, keep, noise))
        inputs = ScanInputs(latent.features, *time_first)
        features, probs = observe_scan(inputs, self._scan_weights(), self.config.unimix, self.matmul)
        deter, stoch = features.transpose(0, 1).split([self.config.deter, self.width], -1)
        return Posterior(Latent(deter, stoch), probs.transpose(0, 1))

    def observe_stepwise(
        self, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor
    ) -> Posterior:
        """The reference for :meth:`observe`: one step after the other, with gradients by autograd."""
        keep = (~is_first).to(tokens.dtype).unsqueeze(-1)
        token_inputs = self._project_tokens(tokens).unbind(1)
        action_inputs = self._project_action(actions * keep).unbind(1)
        latents, params = [], []
        for step, (kept, step_noise) in enumerate(zip(keep.unbind(1), noise.unbind(1), strict=True)):
            deter = self._next_deter(Latent(latent.deter * kept, latent.stoch * kept), action_inputs[step])
            params.append(self._distribution(self._posterior_output(deter, token_inputs[step])))
            latent = Latent(deter, self.rsample(params[-1], step_noise))
            latents.append(latent)
        deters, stochs = zip(*latents, strict=True)
        return Posterior(Latent(torch.stack(deters, 1), torch.stack(stochs, 1)), torch.stack(params, 1))

    def _scan_weights(self) -> ScanWeights:
        entry, core = (self.from_deter, self.from_stoch), self.core
        return ScanWeights(
            deter=self.from_deter.linear.weight,
            stoch=self.from_stoch.linear.weight,
            entry_bias=torch.stack([layer.linear.bias for layer in entry]),
            entry_scale=torch.stack([layer.finish.scale for layer in entry]),
            shared=core.shared.weight[:, : 2 * self.config.hidden],
            own=core.own.weight,
            core_scale=core.hidden.scale,
            gates=core.gates.weight,
            gates_bias=core.gates.bias.unflatten(0, (core.gates.blocks, 1, -1)),
            posterior=self.posterior_deter.weight,
            posterior_scale=self.posterior_hidden.scale,
            output=self.posterior_output.weight,
            output_bias=self.posterior_output.bias,
        )

    # ---------------------------------------------------------------- imagining

    @torch.no_grad()
    def imagine(self, latent: Latent, policy: Policy, noise: Tensor) -> tuple[Features, list[Decision]]:
        """Roll the prior forward from ``latent`` (N, ...), one step per ``noise`` (H, N, S). No gradient.

        The policy's decisions must have encoded actions (N, A). Returns features (H + 1, N, F), starting with those of
        ``latent``, and the decisions.
        """
        steps, count = noise.shape[:2]
        features, next_deter = self._allocate(latent, steps + 1), ImagineKernel(self, count)
        decisions = []
        for step in range(steps):
            decisions.append(policy(features[step], step))
            deter = self._deters(features)[step + 1]
            next_deter(features[step], _bound(_encoded(decisions[-1])), out=deter)
            self._write_stoch(features, step + 1, self.sample(self.prior(deter), noise[step]).flatten(-2))
        return features, decisions

    def imagine_with_gradient(self, latent: Latent, policy: Policy, noise: Tensor) -> tuple[Tensor, list[Decision]]:
        """The plain form of :meth:`imagine`, with gradients through the dynamics."""
        features, decisions = [latent.features], []
        for step, step_noise in enumerate(noise):
            decisions.append(policy(features[-1], step))
            latent, _ = self.imagine_step(latent, _encoded(decisions[-1]), step_noise)
            features.append(latent.features)
        return torch.stack(features), decisions

    def imagine_step(self, latent: Latent, action: Tensor, noise: Tensor) -> tuple[Latent, Tensor]:
        """One step from ``latent`` (N, ...) after encoded actions (N, A): a sample of the prior, and its parameters."""
        deter = self._next_deter(latent, self._project_action(action))
        params = self.prior(deter)
        return Latent(deter, self.rsample(params, noise)), params

    def _allocate(self, latent: Latent, steps: int) -> Features:
        """Memory for features (steps, N, F), with ``latent`` in the first step."""
        count, empty = len(latent.deter), latent.deter.new_empty
        has_lookup = self.config.latents == "categorical" and self.width >= MIN_LOOKUP_COLUMNS
        if not has_lookup or self.backend.device.type != "cpu" or self.backend.precision != "float32":
            features: Features = empty(steps, count, self.features)
        else:
            indices = empty(steps, count, self.config.stoch, dtype=torch.int64)
            features = OneHotFeatures(empty(steps, count, self.config.deter), indices, self.width)
        self._deters(features)[0] = latent.deter
        self._write_stoch(features, 0, latent.stoch)
        return features

    def _deters(self, features: Features) -> Tensor:
        """The columns (steps, N, D) of ``deter``, to write into.

        Uses ``.data`` here and below: the actor's graph keeps views of earlier steps in the same tensor, and autograd
        would take every later write for a change of what it has saved.
        """
        return features.dense.data if isinstance(features, OneHotFeatures) else features.data[..., : self.config.deter]

    def _write_stoch(self, features: Features, step: int, stoch: Tensor) -> None:
        """Write ``stoch`` (N, W) of one step."""
        if isinstance(features, OneHotFeatures):
            features.indices.data[step] = self._one_hot_indices(stoch)
        else:
            features.data[step, :, self.config.deter :] = stoch

    def _one_hot_indices(self, stoch: Tensor) -> Tensor:
        """The columns (N, S) of the ones in ``stoch`` (N, W); W for a variable without a class."""
        columns = torch.arange(self.width, device=stoch.device).view(self.config.classes, -1) - self.width
        indices: Tensor = (stoch.unflatten(-1, columns.shape) * columns).sum(-2).long() + self.width
        return indices

    # ---------------------------------------------------------------- distributions of stoch

    def prior(self, deter: Tensor) -> Tensor:
        """Parameters (..., K, S) of the prior for ``deter`` (..., D)."""
        return self._distribution(self._prior_output(deter))

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """One-hot samples (..., K, S) for uniform noise (..., S)."""
        return sample_one_hot(params, noise)

    def rsample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Samples as features (..., K * S), with straight-through gradients."""
        return straight_through(self.sample(params.detach(), noise), params).flatten(-2)

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        """Noise for :meth:`sample`: one uniform number per variable."""
        return rng.random((*leading, self.config.stoch), dtype=np.float32)

    def kl_losses(self, params: Tensor, deter: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
        """Dynamics and representation loss (...) of posteriors ``params`` (..., K, S) and ``deter`` (..., D)."""
        log_prior = log_mix_uniform(self._logits(self._prior_output(deter)), self.config.unimix)
        return kl_losses(params, log_prior, free_nats)

    @torch.no_grad()
    def usage(self, params: Tensor) -> dict[str, Tensor]:
        """How much of the latent space the posteriors (B, T, K, S) of a batch use."""
        mean = params.flatten(0, 1).mean(0, keepdim=True)
        perplexity = (entropy(mean)[0] / self.config.stoch).exp()
        return {"posterior_entropy": entropy(params).mean(), "latent_perplexity": perplexity}

    # ---------------------------------------------------------------- storage

    def pack(self, latent: Latent) -> Row:
        """A latent as stored in carries and replay: classes as bytes, counted from 1.

        0 means no class: before an episode, and in rows of a buffer that nothing was written to.
        """
        classes = torch.arange(1, self.config.classes + 1, dtype=latent.stoch.dtype, device=latent.stoch.device)
        stoch = (latent.stoch.detach().unflatten(-1, (len(classes), -1)) * classes.unsqueeze(-1)).sum(-2)
        return {"deter": latent.deter.detach().cpu().numpy(), "stoch": stoch.round().to(torch.uint8).cpu().numpy()}

    def unpack(self, stored: Mapping[str, Tensor]) -> Latent:
        classes = stored["stoch"].int() - 1
        return Latent(stored["deter"], one_hot(classes, self.config.classes).flatten(-2))

    # ---------------------------------------------------------------- layers

    @in_precision
    def _prior_output(self, deter: Tensor) -> Tensor:
        return self.prior_output(self.prior_layers(deter))

    @in_precision
    def _posterior_output(self, deter: Tensor, token_input: Tensor) -> Tensor:
        return self.posterior_output(self.posterior_hidden(self.posterior_deter(deter) + token_input))

    @in_precision
    def _project_tokens(self, tokens: Tensor) -> Tensor:
        return self.posterior_token(tokens)

    @in_precision
    def _next_deter(self, latent: Latent, action_input: Tensor) -> Tensor:
        hidden = torch.cat([self.from_deter(latent.deter), self.from_stoch(latent.stoch)], -1)
        weight = self.core.shared.weight[:, : hidden.shape[-1]]
        return self.core(latent.deter, action_input + self.matmul.linear(hidden, weight))

    @in_precision
    def _project_action(self, action: Tensor) -> Tensor:
        """The action's term (..., D) of the GRU's input. Actions are bounded to a magnitude of 1."""
        weight = self.core.shared.weight[:, 2 * self.config.hidden :]
        return self.matmul.linear(self.from_action(_bound(action)), weight)

    def project_discrete_actions(self) -> Tensor:
        """:meth:`_project_action` of each of the A discrete actions: (A, D)."""
        return self._project_action(torch.eye(self.from_action.linear.in_features, device=self.core.own.bias.device))

    def _distribution(self, output: Tensor) -> Tensor:
        """Network outputs as parameters (..., K, S)."""
        return mix_uniform(self._logits(output), self.config.unimix)

    def _logits(self, output: Tensor) -> Tensor:
        """(..., K * S) to (..., K, S)."""
        logits: Tensor = output.unflatten(-1, (self.config.classes, self.config.stoch))
        return logits


def _bound(action: Tensor) -> Tensor:
    """Scale down to a magnitude of 1. The divisor is detached, so that actions out of bounds keep a gradient."""
    return action / action.detach().abs().clamp(min=1)


def _encoded(decision: Decision) -> Tensor:
    assert decision.encoded is not None, "The RSSM reads encoded actions; RSSMWorldModel.imagine encodes them."
    return decision.encoded
