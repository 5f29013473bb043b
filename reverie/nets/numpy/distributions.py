"""The distributions of :mod:`reverie.nets.distributions` in numpy, with their gradients written out.

They are made from the outputs (B, size) of the last layer and the actions taken. ``log_prob`` and ``entropy()`` are
(B,). ``backward`` computes the gradient of the outputs from those of both, and writes that of the head's parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import nn

from reverie.core.types import Array
from reverie.nets.distributions import LOG_TWO_PI
from reverie.nets.heads import DiscreteHead, GaussianHead

LOG_TWO = math.log(2)


class NumpyCategorical:
    """One class out of the columns of ``logits`` (B, K)."""

    def __init__(self, logits: Array, action: Array) -> None:
        log_probs = logits - np.maximum.reduce(logits, 1, keepdims=True)
        probs = np.exp(log_probs)
        total = np.add.reduce(probs, 1, keepdims=True)
        probs /= total
        log_probs -= np.log(total)
        self.probs, self.log_probs = probs, log_probs
        self.taken = action + np.arange(0, logits.size, logits.shape[1])  # indices into the flat logits
        self.log_prob: Array = log_probs.ravel().take(self.taken)

    def entropy(self) -> Array:
        entropy: Array = -np.add.reduce(self.probs * self.log_probs, 1)
        return entropy

    def backward(self, log_prob: Array, entropy: Array | None = None) -> Array:
        """The gradient of the logits."""
        gradient: Array = self.probs * -log_prob[:, None]
        gradient.ravel()[self.taken] += log_prob
        if entropy is not None:
            gradient -= self.probs * (self.log_probs + self.entropy()[:, None]) * entropy[:, None]
        return gradient


class NumpyMultiCategorical:
    """Several independent categorical variables, with concatenated logits."""

    def __init__(self, logits: Array, action: Array, classes: Sequence[int]) -> None:
        parts = np.split(logits, np.cumsum(classes)[:-1], axis=1)
        columns = action.reshape(len(action), -1).T
        self.parts = [NumpyCategorical(part, column) for part, column in zip(parts, columns, strict=True)]
        self.log_prob: Array = np.sum([part.log_prob for part in self.parts], axis=0)

    def entropy(self) -> Array:
        total: Array = np.sum([part.entropy() for part in self.parts], axis=0)
        return total

    def backward(self, log_prob: Array, entropy: Array | None = None) -> Array:
        return np.concatenate([part.backward(log_prob, entropy) for part in self.parts], axis=1)


class NumpyGaussian:
    """Independent normal variables. The standard deviation is a parameter of the head."""

    def __init__(self, mean: Array, action: Array, log_std: nn.Parameter) -> None:
        values = log_std.detach().numpy().ravel()
        assert log_std.grad is not None
        self.log_std_gradient: Array = log_std.grad.numpy().ravel()
        self.inverse = np.exp(-values)
        self.scaled = (action.reshape(mean.shape) - mean) * self.inverse
        self.total = float(values.sum())
        self.log_prob: Array = (-0.5 * self.scaled**2).sum(1) - (self.total + 0.5 * LOG_TWO_PI * len(values))

    def entropy(self) -> Array:
        width = self.scaled.shape[1]
        return np.full(len(self.scaled), self.total + 0.5 * (1 + LOG_TWO_PI) * width, np.float32)

    def backward(self, log_prob: Array, entropy: Array | None = None) -> Array:
        np.matmul(log_prob, self.scaled**2 - 1, out=self.log_std_gradient)
        if entropy is not None:
            self.log_std_gradient += entropy.sum()
        gradient: Array = self.scaled * self.inverse * log_prob[:, None]
        return gradient


class NumpySquashedGaussian:
    """A sample of a normal variable squashed by tanh. ``output`` has mean and log standard deviation (B, 2 A)."""

    def __init__(self, output: Array, noise: Array, bounds: tuple[float, float]) -> None:
        mean, log_std = np.split(output, 2, axis=1)
        clipped = np.minimum(np.maximum(log_std, bounds[0]), bounds[1])
        self.is_within_bounds = clipped == log_std
        self.scaled_noise = np.exp(clipped) * noise
        x = mean + self.scaled_noise
        self.action: Array = np.tanh(x)
        log_slope = 2 * (LOG_TWO - x - np.logaddexp(0, -2 * x))  # log(1 - tanh(x)^2), accurate for large x too
        density = -0.5 * noise * noise - clipped - log_slope
        self.log_prob: Array = density.sum(1) - 0.5 * LOG_TWO_PI * noise.shape[1]

    def backward(self, action: Array, log_prob: Array) -> Array:
        """The gradient of the output, from those of the action (B, A) and of its log-probability (B,)."""
        column = log_prob[:, None]
        mean = action * (1 - self.action * self.action) + 2 * column * self.action
        log_std = (mean * self.scaled_noise - column) * self.is_within_bounds
        return np.concatenate([mean, log_std], axis=1)


NumpyDistribution = NumpyCategorical | NumpyMultiCategorical | NumpyGaussian


def make_numpy_distribution(head: nn.Module, output: Array, action: Array) -> NumpyDistribution:
    """The distribution of a head in numpy, if :func:`has_numpy_form`."""
    if isinstance(head, GaussianHead):
        return NumpyGaussian(output, action, head.log_std)
    assert isinstance(head, DiscreteHead)
    if head.action.kind == "discrete":
        return NumpyCategorical(output, action)
    return NumpyMultiCategorical(output, action, head.action.classes)


def has_numpy_form(head: nn.Module) -> bool:
    return isinstance(head, DiscreteHead | GaussianHead)
