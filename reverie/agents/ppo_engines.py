"""One gradient step of PPO on a minibatch: by autograd, or with the gradients written out in numpy.

Both engines have the same methods and give the same numbers. The numpy engine exists because autograd's bookkeeping
costs several times more than the arithmetic of a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from reverie.agents.actor_critic import ActorCritic
from reverie.agents.numpy_actor_critic import NumpyActorCritic
from reverie.core.types import Array
from reverie.functional.gradients import clipped_policy_gradient, clipped_value_gradient
from reverie.functional.losses import approximate_kl
from reverie.nets.numpy.mlp import quietly
from reverie.nets.optim import FlatOptimizer, Loss, Result

Minibatch = dict[str, Any]


class StepSettings(NamedTuple):
    """The settings of a gradient step at one moment of training; :class:`.PPOConfig` explains them."""

    learning_rate: float
    max_grad_norm: float | None
    target_kl: float | None
    clip: float
    value_clip: float | None
    value_weight: float
    entropy_weight: float

    def accepts(self, metrics: Mapping[str, Any]) -> bool:
        """Whether the policy is still close enough to the old one for a step on this minibatch."""
        return self.target_kl is None or float(metrics["kl"]) <= 1.5 * self.target_kl


class PPOEngine(Protocol):
    """``Result`` has the metrics ``policy_loss`` and ``value_loss``, in ``aux`` the ``log_ratio`` (R,) of each row."""

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        """Shuffled rows, in the form that :meth:`minimise` takes."""
        ...

    def minimise(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        """One gradient step, or none if the policy has moved further than ``target_kl`` allows."""
        ...


def make_ppo_engine(
    model: ActorCritic, optimizer: FlatOptimizer, loss_fn: Callable[[Minibatch, StepSettings], Loss]
) -> PPOEngine:
    """The numpy engine if the model has one. ``loss_fn`` is what the torch engine minimises."""
    model.use_numpy_engine()
    if model.numpy is not None:
        return NumpyEngine(model, model.numpy, optimizer)
    return TorchEngine(model, optimizer, loss_fn)


class TorchEngine:
    """Autograd, one microbatch after the other."""

    def __init__(
        self, model: ActorCritic, optimizer: FlatOptimizer, loss_fn: Callable[[Minibatch, StepSettings], Loss]
    ) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        return self.model.split(rows, size)

    def minimise(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        size = self.model.possible_batch_size(minibatch, self.model.backend.microbatch_size(len(minibatch["weights"])))
        return self.optimizer.minimise(
            partial(self.loss_fn, settings=settings), self.model.split(minibatch, size),
            settings.learning_rate, settings.max_grad_norm, settings.accepts,
        )  # fmt: skip


class NumpyEngine:
    """The derivatives of PPO's loss, written out."""

    def __init__(self, model: ActorCritic, network: NumpyActorCritic, optimizer: FlatOptimizer) -> None:
        self.model, self.network, self.optimizer = model, network, optimizer

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        arrays: dict[str, Array] = {key: value.numpy() for key, value in rows.items()}
        arrays["inputs"] = self.network.inputs(arrays)
        return self.model.split(arrays, size)

    @quietly
    def minimise(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        weights = minibatch["weights"]
        policy, value, kept = self.network.forward(minibatch["inputs"], minibatch["action"])
        log_ratio = policy.log_prob - minibatch["log_prob"]
        policy_losses, policy_gradient = clipped_policy_gradient(log_ratio, minibatch["advantage"], settings.clip)
        value_losses, value_gradient = clipped_value_gradient(
            value, minibatch["value"], minibatch["target"], settings.value_clip
        )  # fmt: skip
        metrics = {"policy_loss": policy_losses @ weights, "value_loss": value_losses @ weights}
        if settings.target_kl is not None:
            metrics["kl"] = torch.dot(approximate_kl(torch.from_numpy(log_ratio)), torch.from_numpy(weights))
        if not settings.accepts(metrics):
            return Result(metrics, {"log_ratio": log_ratio}, None)
        entropy_gradient = -settings.entropy_weight * weights if settings.entropy_weight else None
        output_gradient = policy.backward(policy_gradient * weights, entropy_gradient)
        self.network.backward(output_gradient, value_gradient * (settings.value_weight * weights), kept)
        norm = self.optimizer.apply(settings.learning_rate, settings.max_grad_norm)
        return Result(metrics, {"log_ratio": log_ratio}, norm)


def join(values: list[Any]) -> Tensor:
    """Rows of several minibatches, tensors or arrays, as one tensor."""
    return torch.cat(values) if isinstance(values[0], Tensor) else torch.from_numpy(np.concatenate(values))


def mean(values: list[Any]) -> Any:
    """The mean of a metric over minibatches, tensors or numbers."""
    return torch.stack(values).mean() if isinstance(values[0], Tensor) else np.mean(values)
