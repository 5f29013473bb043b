"""DQN in numpy, with the gradients written out: for vectors, one value per action and plain layers.

It acts and learns like the torch form in :mod:`reverie.algos.dqn`, and much faster where networks are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from reverie.agents.q_network import QNetwork
from reverie.backend import Backend
from reverie.core.types import Array, Carry, Row
from reverie.functional.gradients import huber_gradient
from reverie.functional.transition_batch import TransitionBatch
from reverie.kernels.products import array_matmul
from reverie.nets.numpy.mlp import NumpyInput, NumpyLayer, NumpyMLP, ignore_overflow, is_plain_mlp, make_numpy_layers
from reverie.nets.optim import FlatOptimizer, Result
from reverie.nets.q_heads import ScalarHead


class NumpyQNetworks:
    """The online and the target network. Built after the optimiser, which moves weights to their final storage."""

    def __init__(self, online: QNetwork, target: QNetwork, optimizer: FlatOptimizer, backend: Backend) -> None:
        matmul = array_matmul(backend.numpy_matmul)
        self.inputs = NumpyInput(online.trunk.inputs)
        self.online, self.target = (
            NumpyMLP([*make_numpy_layers(network.trunk.layers, matmul), NumpyLayer(network.head.advantage)])
            for network in (online, target)
        )
        self.optimizer = optimizer

    def q_values(self, now: Row, carry: Carry, rng: np.random.Generator | None) -> tuple[Array, Carry]:
        return self.online(self.inputs(now)), carry

    @ignore_overflow
    def gradient_step(
        self, transitions: TransitionBatch, config: Any, learning_rate: float, rng: np.random.Generator
    ) -> Result:
        batch = transitions
        targets = batch.rewards + batch.discounts * self.next_q(batch.next_obs, config.double)
        activations = self.online.forward(self.inputs(batch.obs))
        taken = np.arange(len(batch.actions)), batch.actions
        q_taken = activations[-1][taken]
        losses, gradient = huber_gradient(q_taken, targets)
        output_gradient = np.zeros_like(activations[-1])
        output_gradient[taken] = gradient * batch.importance_weights
        self.online.backward(output_gradient, activations)
        grad_norm = self.optimizer.apply_gradient(learning_rate, config.max_grad_norm)
        metrics = {"loss": losses @ batch.importance_weights, "value": q_taken @ batch.weights}
        return Result(metrics, {"losses": torch.from_numpy(losses)}, grad_norm)

    def next_q(self, next_obs: Mapping[str, Array], double: bool) -> Array:
        """The target network's values (B,) of the next actions. ``double`` lets the online network choose them."""
        x = self.inputs(next_obs)
        q_values = self.target(x)
        if not double:
            highest: Array = np.maximum.reduce(q_values, 1)
            return highest
        chosen: Array = q_values[np.arange(len(x)), self.online(x).argmax(1)]
        return chosen


def has_numpy_form(network: QNetwork) -> bool:
    """Whether :class:`NumpyQNetworks` can replace the torch form of this network."""
    head = network.head
    is_simple = isinstance(head, ScalarHead) and head.value is None and isinstance(head.advantage, nn.Linear)
    return is_simple and is_plain_mlp(network.trunk)
