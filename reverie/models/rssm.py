"""The recurrent state-space model: a deterministic memory and categorical latents (Hafner et al. 2019, 2021, 2023).

The memory (``deter``) is moved by a block-diagonal GRU; the latent (``stoch``) is drawn from what the memory says
alone (the prior, in dreams) or together with what is seen (the posterior). Inside, time comes first: (T, B, ...).

For speed, everything that needs no recurrence is done for all steps at once: projections of actions and observations
before the scan, the prior after it. Noise is drawn outside and handed in, one uniform number per latent variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie import backend
from reverie.core.config import Config
from reverie.core.types import Array, Row
from reverie.functional.categorical import (
    draw_one_hot,
    entropy,
    log_mix_uniform,
    mix_uniform,
    one_hot,
    split_divergence,
    straight_through,
)  # fmt: skip
from reverie.models.mover import Mover
from reverie.models.scan import Inputs, StepWeights, follow
from reverie.nets.blocks import BlockGRU, Dense, NormedSiLU, Projection, make_dense, make_linear
from reverie.nets.choices import Chosen, Features
from reverie.nets.matmul import linear
from reverie.nets.precision import in_precision

Policy = Callable[[Any, int], Tensor]
"""From :data:`Features` (N, F) and the number of the step to actions; where gradients flow, from tensors."""


FEWEST_PICKED = 256
"""One-hot columns from which on picking rows of weights pays: a twentieth of an update with 512, a loss with 128."""


class RSSMConfig(Config):
    """Sizes of the model's memory."""

    deter: int = Field(2048, ge=1)
    """Width of the deterministic memory."""
    hidden: int = Field(256, ge=1)
    """Width of the layers around it."""
    latents: Literal["categorical", "gaussian"] = "categorical"
    """What the latent variables are: choices among classes, or numbers."""
    stoch: int = Field(32, ge=1)
    """Latent variables."""
    classes: int = Field(16, ge=2, le=255)
    """Classes of each categorical variable; they are stored as bytes, of which one means none."""
    blocks: int = Field(8, ge=1)
    """Blocks of the recurrent weights; must divide ``deter``."""
    prior_layers: int = Field(2, ge=1)
    """Layers between the memory and the prior."""
    unimix: float = Field(0.01, ge=0, lt=1)
    """Share of the uniform distribution in every categorical latent."""
    min_std: float = Field(0.1, gt=0)
    """Smallest deviation of Gaussian latents."""

    @property
    def width(self) -> int:
        """Numbers that the latent variables take among the features."""
        return self.stoch * (self.classes if self.latents == "categorical" else 1)

    @property
    def outputs(self) -> int:
        """Numbers that describe the distribution of the latent variables."""
        return self.stoch * (self.classes if self.latents == "categorical" else 2)

    @model_validator(mode="after")
    def _divides(self) -> RSSMConfig:
        if self.deter % self.blocks:
            raise ValueError(f"blocks ({self.blocks}) must divide deter ({self.deter})")
        return self


class Latent(NamedTuple):
    """A state of the model: ``deter`` (..., D) and ``stoch`` (..., K * S), one-hot or (..., S) of numbers."""

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """What heads look at."""
        return torch.cat([self.deter, self.stoch], -1)

    def flatten(self) -> Latent:
        """All leading axes as one, without gradient: starts of dreams."""
        return Latent(*(part.detach().flatten(0, -2) for part in self))


class Observed(NamedTuple):
    """What a scan over observations gives, (B, T, ...)."""

    latent: Latent
    posterior: Tensor
    """Distributions of the latents (B, T, K, S): probabilities of K classes, or mean and deviation."""

    def detach(self) -> Observed:
        """The same without gradient."""
        return Observed(Latent(*(part.detach() for part in self.latent)), self.posterior.detach())


class RSSM(nn.Module):
    """The dynamics alone, over encoded actions and observations."""

    def __init__(self, config: RSSMConfig, actions: int, tokens: int, actions_are_choices: bool = False) -> None:
        """``actions_are_choices``: the only actions are the one-hot vectors of that length."""
        super().__init__()
        self.config = config
        self.actions_are_choices = actions_are_choices
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
        """Where every episode begins."""
        zeros = self.core.own.bias.new_zeros
        return Latent(zeros(count, self.config.deter), zeros(count, self.width))

    def observe(self, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, uniform: Tensor) -> Observed:
        """Follow observations: ``tokens`` (B, T, E), the ``actions`` (B, T, A) that led to them, ``uniform`` (B, T, S).

        Where ``is_first`` (B, T) nothing before counts.
        """
        keep = (~is_first).to(tokens.dtype).unsqueeze(-1)
        seen = self._project_tokens(tokens) + self.posterior_deter.bias
        moved = self._project_action(actions * keep) + self.core.own.bias
        along = (part.transpose(0, 1) for part in (seen, moved, keep, uniform))
        features, posterior = follow(Inputs(latent.features, *along), self._step_weights(), self.config.unimix)
        deter, stoch = features.transpose(0, 1).split([self.config.deter, self.width], -1)
        return Observed(Latent(deter, stoch), posterior.transpose(0, 1))

    def _step_weights(self) -> StepWeights:
        entry, core = (self.from_deter, self.from_stoch), self.core
        return StepWeights(
            deter=self.from_deter.linear.weight,
            stoch=self.from_stoch.linear.weight,
            entry_bias=torch.stack([part.linear.bias for part in entry]),
            entry_scale=torch.stack([part.finish.scale for part in entry]),
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

    @torch.no_grad()
    def imagine(self, latent: Latent, policy: Policy, uniform: Tensor) -> Features:
        """Dream on from ``latent`` (N, ...) for as many steps as there is noise (H, N, S); no gradients.

        ``policy`` gives encoded actions (N, A). Returns features (H + 1, N, F), the first those of ``latent``.
        """
        steps, count = uniform.shape[:2]
        seen, move = self._make_room(latent, steps + 1), Mover(self, count)
        for step in range(steps):
            now = seen[step]
            deter = self._memory(seen)[step + 1]
            move(now, _bound(policy(now, step)), out=deter)
            self._remember(seen, step + 1, self.draw(self.prior(deter), uniform[step]).flatten(-2))
        return seen

    def _make_room(self, latent: Latent, steps: int) -> Features:
        """Room for the features of a dream (steps, N, F) that begins with ``latent``."""
        count, empty = len(latent.deter), latent.deter.new_empty
        is_picked = self.config.latents == "categorical" and self.width >= FEWEST_PICKED
        if not is_picked or latent.deter.device.type != "cpu" or backend.precision() != "float32":
            seen: Features = empty(steps, count, self.features)
        else:
            places = empty(steps, count, self.config.stoch, dtype=torch.int64)
            seen = Chosen(empty(steps, count, self.config.deter), places, self.width)
        self._memory(seen)[0] = latent.deter
        self._remember(seen, 0, latent.stoch)
        return seen

    def _memory(self, seen: Features) -> Tensor:
        """The memories (steps, N, D) of a dream, to be written into.

        Data, here and below: a dream goes on in the same memory; autograd would see a change of what it keeps in that.
        """
        return seen.numbers.data if isinstance(seen, Chosen) else seen.data[..., : self.config.deter]

    def _remember(self, seen: Features, step: int, stoch: Tensor) -> None:
        """Write down the latent variables (N, W) of a step."""
        if isinstance(seen, Chosen):
            seen.places.data[step] = self._places(stoch)
        else:
            seen.data[step, :, self.config.deter :] = stoch

    def _places(self, stoch: Tensor) -> Tensor:
        """The columns (N, S) of the ones in latents (N, W); W where a variable has none."""
        columns = torch.arange(self.width, device=stoch.device).view(self.config.classes, -1) - self.width
        return (stoch.unflatten(-1, columns.shape) * columns).sum(-2).long() + self.width

    def dream(self, latent: Latent, policy: Policy, noise: Tensor) -> Tensor:
        """As :meth:`imagine`, with gradients through everything that is dreamt: for policies that learn by them."""
        features = [latent.features]
        for step, drawn in enumerate(noise):
            deter = self._move(latent, self._project_action(policy(features[-1], step)))
            latent = Latent(deter, self.draw_through(self.prior(deter), drawn))
            features.append(latent.features)
        return torch.stack(features)

    def prior(self, deter: Tensor) -> Tensor:
        """What the memory (..., D) expects: distributions (..., K, S)."""
        return self._probability(self._expect(deter))

    def draw(self, probability: Tensor, uniform: Tensor) -> Tensor:
        """One-hot latents (..., K, S) for uniform numbers (..., S)."""
        return draw_one_hot(probability, uniform)

    def draw_through(self, probability: Tensor, uniform: Tensor) -> Tensor:
        """The same as features (..., K * S), with the gradient of the probabilities."""
        return straight_through(self.draw(probability.detach(), uniform), probability).flatten(-2)

    def draw_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        """What draws take: one uniform number per variable."""
        return rng.random((*leading, self.config.stoch), dtype=np.float32)

    def divergences(self, posterior: Tensor, deter: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
        """How far the prior of memories (..., D) and posterior are apart (...): to pull the one, and the other."""
        log_prior = log_mix_uniform(self._logits(self._expect(deter)), self.config.unimix)
        return split_divergence(posterior, log_prior, free_nats)

    @torch.no_grad()
    def usage(self, posterior: Tensor) -> dict[str, Tensor]:
        """How much of the latent space posteriors (B, T, K, S) use."""
        mean = posterior.flatten(0, 1).mean(0, keepdim=True)
        perplexity = (entropy(mean)[0] / self.config.stoch).exp()
        return {"posterior_entropy": entropy(posterior).mean(), "latent_perplexity": perplexity}

    def pack(self, latent: Latent) -> Row:
        """A latent as it is stored: classes as bytes, counted from 1.

        0 is no class at all, as before an episode, and as buffers give it for rows that nothing was written to.
        """
        classes = torch.arange(1, self.config.classes + 1, dtype=latent.stoch.dtype, device=latent.stoch.device)
        stoch = (latent.stoch.detach().unflatten(-1, (len(classes), -1)) * classes.unsqueeze(-1)).sum(-2)
        return {"deter": latent.deter.detach().cpu().numpy(), "stoch": stoch.round().to(torch.uint8).cpu().numpy()}

    def unpack(self, stored: Mapping[str, Tensor]) -> Latent:
        chosen = stored["stoch"].int() - 1
        return Latent(stored["deter"], one_hot(chosen, self.config.classes).flatten(-2))

    @in_precision
    def _expect(self, deter: Tensor) -> Tensor:
        return self.prior_output(self.prior_layers(deter))

    @in_precision
    def _project_tokens(self, tokens: Tensor) -> Tensor:
        return self.posterior_token(tokens)

    @in_precision
    def _move(self, latent: Latent, action: Tensor) -> Tensor:
        """The next memory; ``action`` is already projected."""
        hidden = torch.cat([self.from_deter(latent.deter), self.from_stoch(latent.stoch)], -1)
        weight = self.core.shared.weight[:, : hidden.shape[-1]]
        return self.core(latent.deter, action + linear(hidden, weight))

    @in_precision
    def _project_action(self, action: Tensor) -> Tensor:
        """The part of the GRU's input that the action decides (..., D). Actions count up to a size of 1."""
        weight = self.core.shared.weight[:, 2 * self.config.hidden :]
        return linear(self.from_action(_bound(action)), weight)

    def project_choices(self) -> Tensor:
        """The same for each of the actions that can be chosen (A, D)."""
        return self._project_action(torch.eye(self.from_action.linear.in_features, device=self.core.own.bias.device))

    def _probability(self, output: Tensor) -> Tensor:
        return mix_uniform(self._logits(output), self.config.unimix)

    def _logits(self, output: Tensor) -> Tensor:
        """What a network puts out (..., K * S), by classes and variables (..., K, S)."""
        return output.unflatten(-1, (self.config.classes, self.config.stoch))


def _bound(action: Tensor) -> Tensor:
    """At most 1 in size. The divisor is taken as given: actions that are too big keep a slope."""
    return action / action.detach().abs().clamp(min=1)
