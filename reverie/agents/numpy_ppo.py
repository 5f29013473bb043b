"""PPO's gradient step in numpy, with the gradients written out: for fully connected networks.

It gives the same numbers as the torch form in :mod:`reverie.algos.ppo`, and much faster where networks are small.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from reverie.agents.actor_critic import ActorCritic
from reverie.agents.numpy_actor_critic import NumpyActorCritic
from reverie.agents.ppo_engine import Minibatch, StepSettings
from reverie.core.types import Array
from reverie.functional.gradients import clipped_policy_gradient, clipped_value_gradient
from reverie.functional.losses import approximate_kl
from reverie.nets.numpy.mlp import ignore_overflow
from reverie.nets.optim import FlatOptimizer, Result


class NumpyPPO:
    """Trains the model that its numpy form mirrors."""

    def __init__(self, model: ActorCritic, network: NumpyActorCritic, optimizer: FlatOptimizer) -> None:
        self.model, self.network, self.optimizer = model, network, optimizer

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        arrays: dict[str, Array] = {key: value.numpy() for key, value in rows.items()}
        arrays["inputs"] = self.network.inputs(arrays)
        return self.model.split(arrays, size)

    @ignore_overflow
    def gradient_step(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        weights = minibatch["weights"]
        policy, value, kept = self.network.forward(minibatch["inputs"], minibatch["action"])
        log_ratio = policy.log_prob - minibatch["log_prob"]
        policy_losses, policy_gradient = clipped_policy_gradient(log_ratio, minibatch["advantage"], settings.clip)
        value_losses, value_gradient = clipped_value_gradient(
            value, minibatch["value"], minibatch["target"], settings.value_clip
        )  # fmt: skip
        aux = {"log_ratio": torch.from_numpy(log_ratio)}
        metrics = {"policy_loss": policy_losses @ weights, "value_loss": value_losses @ weights}
        if settings.target_kl is not None:
            metrics["kl"] = torch.dot(approximate_kl(aux["log_ratio"]), torch.from_numpy(weights))
        if not settings.accepts(metrics):
            return Result(metrics, aux, None)
        entropy_gradient = -settings.entropy_weight * weights if settings.entropy_weight else None
        output_gradient = policy.backward(policy_gradient * weights, entropy_gradient)
        self.network.backward(output_gradient, value_gradient * (settings.value_weight * weights), kept)
        norm = self.optimizer.apply_gradient(settings.learning_rate, settings.max_grad_norm)
        return Result(metrics, aux, norm)
