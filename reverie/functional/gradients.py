"""Losses with their derivatives written out, on numpy arrays: what autograd would find, at a fraction of its cost.

Each returns the loss per sample and its derivative by the first argument. They mirror :mod:`.losses`, and tests hold
them to it.
"""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array


def clipped_policy_gradient(log_ratio: Array, advantage: Array, clip: float) -> tuple[Array, Array]:
    """PPO's surrogate (Schulman et al. 2017, Eq. 7) with the sign of a loss."""
    ratio = np.exp(log_ratio)
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantage
    return -np.minimum(gain, clipped), gain * -(gain <= clipped).astype(np.float32)


def clipped_value_gradient(value: Array, old_value: Array, target: Array, clip: float | None) -> tuple[Array, Array]:
    """Squared error; with ``clip``, moving further than this from the old value gains nothing."""
    error = value - target
    if clip is None:
        return error * error, 2 * error
    moved = value - old_value
    near = old_value + np.clip(moved, -clip, clip) - target
    is_near = near * near > error * error
    slope = np.where(is_near, near * (np.abs(moved) < clip), error)
    return np.maximum(error * error, near * near), 2 * slope


def huber_gradient(value: Array, target: Array) -> tuple[Array, Array]:
    """Huber's loss with its bend at 1."""
    error = value - target
    slope = np.minimum(np.maximum(error, -1), 1)
    return slope * (error - 0.5 * slope), slope
