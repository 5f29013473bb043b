"""Soft actor-critic in numpy, with the gradients written out: for vectors, continuous actions and plain layers.

It acts and learns like the torch form in :mod:`reverie.algos.sac`, and much faster where networks are small.
"""

from __future__ import annotations

import numpy as np
import torch

from reverie.agents.soft_actor_critic import LOG_STD, Actions, Actor, ContinuousActions, Critics
from reverie.backend import Backend
from reverie.core.types import Array, Carry, Row, random_array
from reverie.functional.transition_batch import TransitionBatch
from reverie.kernels.products import array_matmul
from reverie.nets.numpy.distributions import NumpySquashedGaussian
from reverie.nets.numpy.mlp import (
    NumpyEnsemble,
    NumpyInput,
    NumpyLayer,
    NumpyMLP,
    ignore_overflow,
    is_plain,
    make_numpy_layers,
)  # fmt: skip
from reverie.nets.optim import FlatOptimizer, Result
from reverie.nets.temperature import Temperature


class NumpySoftActorCritic:
    """Built after the optimisers, which move weights and gradients to their final storage."""

    def __init__(
        self,
        actor: Actor,
        critics: Critics,
        target_critics: Critics,
        temperature: Temperature,
        actor_optimizer: FlatOptimizer,
        critic_optimizer: FlatOptimizer,
        backend: Backend,
    ) -> None:
        matmul = array_matmul(backend.numpy_matmul)
        self.inputs = NumpyInput(critics.encoder.network)
        self.actor = NumpyMLP([*make_numpy_layers(actor.layers, matmul), NumpyLayer(actor.output)])
        self.critics, self.target_critics = (NumpyEnsemble(each.ensemble, matmul) for each in (critics, target_critics))
        self.temperature = temperature
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer

    def choose(self, now: Row, carry: Carry, noise: Array | None) -> tuple[Array, Carry]:
        mean, log_std = np.split(self.actor(self.inputs(now)), 2, axis=1)
        return np.tanh(mean if noise is None else mean + np.exp(np.clip(log_std, *LOG_STD)) * noise), carry

    @ignore_overflow
    def gradient_step(
        self, transitions: TransitionBatch, learning_rate: float, rng: np.random.Generator
    ) -> tuple[Result, Result]:
        batch = transitions.flatten()
        weights, size, temperature = batch.weights, len(batch.weights), float(self.temperature())
        obs, next_obs = self.inputs(batch.obs), self.inputs(batch.next_obs)
        noise = np.concatenate([random_array(rng, *batch.actions.shape) for _ in range(2)])
        outputs = self.actor.forward(np.concatenate([next_obs, obs]))

        next_policy = NumpySquashedGaussian(outputs[-1][:size], noise[:size], LOG_STD)
        next_q = self.target_critics(np.concatenate([next_obs, next_policy.action], axis=1))[..., 0]
        next_values = next_q.min(0) - temperature * next_policy.log_prob  # Eq. 3
        targets = batch.rewards + batch.discounts * next_values  # Eq. 2
        critic_outputs = self.critics.forward(np.concatenate([obs, batch.actions], axis=1))
        q_values = critic_outputs[-1][..., 0]
        errors = q_values - targets
        self.critics.backward((errors * batch.importance_weights)[..., None], critic_outputs)  # Eq. 6
        critic_norm = self.critic_optimizer.apply_gradient(learning_rate)
        critic_loss = 0.5 * float(np.square(errors).sum(0) @ batch.importance_weights)  # Eq. 5

        policy = NumpySquashedGaussian(outputs[-1][size:], noise[size:], LOG_STD)
        lowest_q, action_gradient = self._lowest_q(obs, policy.action, -weights)
        output_gradient = policy.backward(action_gradient, temperature * weights)
        self.actor.backward(output_gradient, [activation[size:] for activation in outputs])  # Eq. 10
        entropy = -float(policy.log_prob @ weights)
        self.temperature.set_gradient(entropy)
        actor_norm = self.actor_optimizer.apply_gradient(learning_rate)
        actor_loss = -temperature * entropy - float(lowest_q @ weights)  # Eq. 9

        metrics = {"critic_loss": critic_loss, "value": float(q_values.mean(0) @ weights)}
        aux = {"td_errors": torch.from_numpy(np.abs(errors).mean(0))}
        return Result(metrics, aux, critic_norm), Result({"actor_loss": actor_loss, "entropy": entropy}, {}, actor_norm)

    def _lowest_q(self, obs: Array, actions: Array, scale: Array) -> tuple[Array, Array]:
        """The lowest of the critics' values (B,), and its gradient with respect to the actions (B, A) x ``scale``."""
        outputs = self.critics.forward(np.concatenate([obs, actions], axis=1))
        q_values = outputs[-1][..., 0]
        lowest, rows = q_values.argmin(0), np.arange(len(obs))
        gradient = np.zeros_like(outputs[-1])
        gradient[lowest, rows, 0] = scale
        return q_values[lowest, rows], self.critics.input_gradient(gradient, outputs, begin=obs.shape[1])


def has_numpy_form(actions: Actions, actor: Actor, critics: Critics) -> bool:
    """Whether :class:`NumpySoftActorCritic` can replace the torch form of these."""
    layers = (actor.layers, critics.ensemble.layers)
    return isinstance(actions, ContinuousActions) and critics.encoder.is_plain and all(map(is_plain, layers))
