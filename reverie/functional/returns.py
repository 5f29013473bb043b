"""Returns and advantages of sequences, as pure functions of float32 tensors ``(B, T)``.

The arguments are those that :func:`reverie.data.rows.transitions` returns. Column t is the transition from row t
(``now``) to row t + 1 (``then``):

===============  =======================================================================
``reward``       r[t + 1], arrived in ``then``
``next_value``   V(s[t + 1]), the value of ``then``
``terminated``   bool, ``then`` is absorbing: its value is 0
``last``         bool, ``then`` ends its episode, terminated or truncated
``weight``       1 for a real transition, 0 where ``now`` is a final row (the result is 0 there, too)
===============  =======================================================================

Departures from the textbook: an episode may end anywhere in the sequence. If it was truncated, the result bootstraps
from the value of its true final observation. The end of the data counts as truncation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array


class NStep(NamedTuple):
    """Terms of an n-step return: ``reward + discount * next_value[column]``."""

    reward: Any
    """Discounted sum of the rewards of the n steps."""
    column: Any
    """Column of ``next_value`` to bootstrap from: t + n - 1, or earlier if the episode ends before."""
    discount: Any
    """gamma^k for the k rewards in the sum; 0 if they end in an absorbing state."""


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016)."""
    delta = reward + gamma * next_value * ~terminated - value  # Eq. 10
    return _scan_backwards(delta * weight, gamma * lam * ~last * weight)  # Eq. 16


def td_lambda_return(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """The lambda-return in recursive form (Sutton and Barto 2018, section 12.1, exercise 12.1).

    G[t] = r[t + 1] + gamma * ((1 - lam) * V[t + 1] + lam * G[t + 1])
    """
    mix = lam * _continues(last, weight)
    base = reward + gamma * (1 - mix) * next_value * ~terminated
    return weight * _scan_backwards(base, gamma * mix)


def imagined_return(reward: Tensor, next_value: Tensor, discount: Tensor, lam: float) -> Tensor:
    """The lambda-return of imagined trajectories (Hafner et al. 2023, Eq. 5).

    ``discount`` (B, T) is the model's continuation of ``then``, the discount included. It takes the place of flags and
    weights. The last column bootstraps from its value.
    """
    mix = torch.full_like(discount, lam)
    mix[:, -1] = 0
    return _scan_backwards(reward + discount * (1 - mix) * next_value, discount * mix)


def discounted_return(
    reward: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    gamma: float,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """The discounted sum of rewards to the end of the episode.

    ``bootstrap`` holds the values of ``then``, for truncated episodes. Without it they are 0.
    """
    if bootstrap is None:
        bootstrap = torch.zeros_like(reward)
    return td_lambda_return(reward, bootstrap, terminated, last, weight, gamma, lam=1.0)


def n_step(reward: Tensor, terminated: Tensor, last: Tensor, weight: Tensor, gamma: float, n: int) -> NStep:
    """The n-step return before bootstrapping. A network then has to evaluate only the rows that are used."""
    continues = _continues(last, weight)
    alive, total, steps = weight, torch.zeros_like(reward), torch.zeros_like(reward)
    for k in range(n):
        total = total + gamma**k * alive * _shift(reward, k)
        steps = steps + alive
        alive = alive * _shift(continues, k)
    columns = torch.arange(reward.shape[1], device=reward.device)
    column = (columns + steps.long() - 1).clamp(min=0)
    discount = weight * gamma**steps * ~terminated.gather(1, column)
    return NStep(total, column, discount)


def first_n_step(reward: Array, terminated: Array, last: Array, weight: Array, gamma: float) -> NStep:
    """:func:`n_step` of the first column, with n = T, on numpy arrays: for replayed transitions."""
    if reward.shape[1] == 1:  # most updates: a third of the time
        alive = weight[:, 0]
        discount = alive * np.float32(gamma) * ~terminated[:, 0]
        return NStep(alive * reward[:, 0], np.zeros(len(alive), np.int64), discount)
    alive = np.cumprod(np.concatenate([weight[:, :1], ~last[:, :-1] * weight[:, 1:]], axis=1), axis=1)
    steps = alive.sum(axis=1)
    column = np.maximum(steps.astype(np.int64) - 1, 0)
    is_terminal = terminated[np.arange(len(column)), column]
    powers = np.power(np.float32(gamma), np.arange(reward.shape[1], dtype=np.float32))
    discount = weight[:, 0] * np.power(np.float32(gamma), steps) * ~is_terminal
    return NStep((alive * reward) @ powers, column, discount)


def _continues(last: Tensor, weight: Tensor) -> Tensor:
    """1 where column t + 1 continues the episode of column t.

    ``last`` alone does not say so: data with a gap stop there without a final row.
    """
    return ~last * _shift(weight, 1)


def _shift(x: Tensor, k: int) -> Tensor:
    """Move column t + k to column t. The last k columns become zeros."""
    if k == 0:
        return x
    return torch.cat([x[:, k:], torch.zeros_like(x[:, :k])], dim=1)


def _scan_backwards(base: Tensor, decay: Tensor) -> Tensor:
    """y[t] = base[t] + decay[t] * y[t + 1], with 0 after the end.

    Computed by doubling: after each round a column is the sum of twice as many columns as before. For 2048 columns that
    takes eleven operations on whole tensors instead of 2048 steps, whose overhead is larger than their arithmetic.
    """
    reach = 1
    while reach < base.shape[1]:
        base = base + decay * _shift(base, reach)
        decay = decay * _shift(decay, reach)
        reach *= 2
    return base
