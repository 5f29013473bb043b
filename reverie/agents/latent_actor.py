"""Actor and critic on the features of a world model (Hafner et al. 2023, Eq. 4)."""

from __future__ import annotations

import copy
import math
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from reverie.core.specs import ActionSpec
from reverie.core.types import Array, random_array
from reverie.functional.categorical import mix_uniform
from reverie.nets.backend_module import BackendModule
from reverie.nets.blocks import make_dense, make_linear
from reverie.nets.distributions import Categorical, Distribution, Gaussian, Joint, MultiCategorical, TanhGaussian
from reverie.nets.one_hot import Features
from reverie.nets.precision import in_precision
from reverie.nets.two_hot import HeadConfig, ScalarDistribution, ScalarHead, ScalarHeadConfig, in_chunks

_STD_SHIFT = 2.0
"""Standard deviations start near their maximum."""
_MEAN_BOUND = 5.0


class ActorConfig(HeadConfig):
    """The network of the policy."""

    layers: int = Field(3, ge=0)
    """Fully connected layers."""
    unimix: float = Field(0.01, ge=0, lt=1)
    """Weight of the uniform distribution that is mixed into discrete actions."""
    distribution: Literal["bounded", "tanh_normal"] = "bounded"
    """Of continuous actions. ``bounded``: normal with a mean between -1 and 1. ``tanh_normal``: squashed by tanh."""
    min_std: float = Field(0.1, gt=0)
    """Smallest standard deviation of continuous actions."""
    max_std: float = Field(1.0, gt=0)
    """Largest standard deviation of ``bounded`` actions, and the initial one of ``tanh_normal`` actions."""
    output_scale: float = Field(0.01, ge=0)
    """Scale of the initial output weights. A small one starts with a nearly uniform policy."""


class LatentActor(BackendModule):
    """Features (N, F) to a distribution over actions (N, *shape)."""

    def __init__(self, config: ActorConfig, inputs: int, action: ActionSpec) -> None:
        super().__init__()
        self.config = config
        self.action = action
        self.parts = action.parts or (action,)
        self.layers = make_dense(inputs, config.units, config.layers)
        self.outputs = [part.size * (2 if part.kind == "continuous" else 1) for part in self.parts]
        outputs = sum(self.outputs)
        self.output = make_linear(config.units if config.layers else inputs, outputs, config.output_scale)

    def forward(self, features: Features) -> Distribution:
        return self.distribution(self.compute(features))

    @in_precision
    def compute(self, features: Features) -> Tensor:
        """The network's outputs (N, ...), which :meth:`distribution` takes."""
        return self.output(self.layers(features))

    def distribution(self, output: Tensor) -> Distribution:
        """The distribution with these network outputs (N, ...)."""
        if not self.action.parts:
            return self._distribution(self.action, output)
        columns = zip(self.parts, output.split(self.outputs, -1), strict=True)
        distributions = [self._distribution(part, own) for part, own in columns]
        return Joint(distributions, [part.size for part in self.parts], [part.width for part in self.parts])

    def _distribution(self, action: ActionSpec, output: Tensor) -> Distribution:
        if action.kind == "continuous":
            make = self._tanh_gaussian if self.config.distribution == "tanh_normal" else self._gaussian
            return make(action.shape, *output.chunk(2, -1))
        if action.kind == "discrete":
            return Categorical(self._mixed(output))
        parts = [self._mixed(part) for part in output.split(list(action.classes), -1)]
        return MultiCategorical(torch.cat(parts, -1), action.classes, action.shape)

    def sample_noise(self, rng: np.random.Generator, *leading: int) -> Array:
        """Noise (*leading, size) for samples: normal for continuous actions, uniform for discrete ones."""
        noise = [
            random_array(rng, *leading, part.size)
            if part.kind == "continuous"
            else rng.random((*leading, part.size), dtype=np.float32)
            for part in self.parts
        ]
        return noise[0] if len(noise) == 1 else np.concatenate(noise, -1)

    def _mixed(self, logits: Tensor) -> Tensor:
        return mix_uniform(logits.unsqueeze(-1), self.config.unimix).squeeze(-1).log() if self.config.unimix else logits

    def _gaussian(self, shape: tuple[int, ...], mean: Tensor, spread: Tensor) -> Gaussian:
        low, high = self.config.min_std, self.config.max_std
        std = (high - low) * torch.sigmoid(spread + _STD_SHIFT) + low
        return Gaussian(mean.tanh().unflatten(-1, shape), std.log().unflatten(-1, shape))

    def _tanh_gaussian(self, shape: tuple[int, ...], mean: Tensor, spread: Tensor) -> TanhGaussian:
        """As in the first Dreamer: means are bounded to 5, beyond which tanh is flat."""
        start = math.log(math.expm1(self.config.max_std))
        std = F.softplus(spread + start) + self.config.min_std
        return TanhGaussian(_MEAN_BOUND * torch.tanh(mean / _MEAN_BOUND), std.log(), shape)


class LatentCritic(nn.Module):
    """A value head and its target network."""

    def __init__(self, config: ScalarHeadConfig, inputs: int) -> None:
        super().__init__()
        self.value = ScalarHead(config, inputs)
        self.target = copy.deepcopy(self.value).requires_grad_(False)

    def forward(self, features: Features) -> ScalarDistribution:
        return self.value(features)

    def mean(self, features: Features) -> Tensor:
        """Values (...)."""
        return in_chunks(lambda chunk: self.value(chunk).mean(), features)

    def target_mean(self, features: Features) -> Tensor:
        """Values (...) of the target network."""
        return in_chunks(lambda chunk: self.target(chunk).mean(), features)

    @torch.no_grad()
    def update_target(self, rate: float) -> None:
        """Move the target network towards the value head by a step of its moving average."""
        torch._foreach_lerp_(list(self.target.parameters()), list(self.value.parameters()), rate)
