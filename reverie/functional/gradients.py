"""Losses and their hand-written derivatives on numpy arrays, for a fraction of autograd's cost.

Each function returns the loss per sample and its derivative with respect to the first argument. Tests compare them with
autograd on :mod:`.losses`.
"""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array


def clipped_policy_gradient(log_ratio: Array, advantage: Array, clip: float) -> tuple[Array, Array]:
    """PPO's clipped surrogate objective (Schulman et al. 2017, Eq. 7), negated to be a loss."""
    ratio = np.exp(log_ratio)
    objective = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantage
    return -np.minimum(objective, clipped), objective * -(objective <= clipped).astype(np.float32)


def clipped_value_gradient(value: Array, old_value: Array, target: Array, clip: float | None) -> tuple[Array, Array]:
    """Squared error. With ``clip``, there is no gradient for moving farther than this from the old value."""
    error = value - target
    if clip is None:
        return error * error, 2 * error
    change = value - old_value
    clipped_error = old_value + np.clip(change, -clip, clip) - target
    is_clipped = clipped_error * clipped_error > error * error
    gradient = np.where(is_clipped, clipped_error * (np.abs(change) < clip), error)
    return np.maximum(error * error, clipped_error * clipped_error), 2 * gradient


def huber_gradient(value: Array, target: Array) -> tuple[Array, Array]:
    """Huber loss with threshold 1."""
    error = value - target
    gradient = np.minimum(np.maximum(error, -1), 1)
    return gradient * (error - 0.5 * gradient), gradient
