"""Returns and advantages over stretches of experience, as pure functions of ``(B, T)`` float32 tensors.

Every function takes what :func:`reverie.data.rows.transitions` gives. Column t is the transition from row t
(``now``) to row t + 1 (``then``):

===============  =======================================================================
``reward``       r[t + 1], arrived in ``then``
``next_value``   V(s[t + 1]), the value of ``then``
``terminated``   bool, ``then`` is absorbing: nothing follows, nothing to bootstrap from
``last``         bool, ``then`` ends its episode, terminated or truncated
``weight``       1 for a real transition, 0 where ``now`` is a final row (there the result is 0 too)
===============  =======================================================================

Departures from the usual: an episode may end anywhere in the stretch, and where it was only cut (truncated)
the value of its true final observation stands in for the rest. The end of the data counts as a cut.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.core.types import Array


class NStep(NamedTuple):
    """The parts of an n-step return: ``reward + discount * next_value[column]``."""

    reward: Any
    """Discounted sum of the rewards inside the n steps."""
    column: Any
    """Column of ``next_value`` to bootstrap from; earlier than t + n - 1 if the episode ends before."""
    discount: Any
    """gamma^k for the k steps really summed; 0 if they end in an absorbing state."""


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
    """The lambda-return (Sutton and Barto 2018, section 12.1) in its recursive form.

    G[t] = r[t + 1] + gamma * ((1 - lam) * V[t + 1] + lam * G[t + 1])
    """
    mix = lam * _continues(last, weight)
    base = reward + gamma * (1 - mix) * next_value * ~terminated
    return weight * _scan_backwards(base, gamma * mix)


def imagined_return(reward: Tensor, next_value: Tensor, discount: Tensor, lam: float) -> Tensor:
    """The lambda-return where a model says how much of the future is left: ``discount`` (B, T) belongs to ``then``.

    Nothing ends for certain in a dream, so there are no flags and no weights; behind the last column stands its value.
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

    ``bootstrap`` holds the values of ``then``; they stand in for what lies behind a cut. Without it nothing
    does.
    """
    if bootstrap is None:
        bootstrap = torch.zeros_like(reward)
    return td_lambda_return(reward, bootstrap, terminated, last, weight, gamma, lam=1.0)


def n_step(reward: Tensor, terminated: Tensor, last: Tensor, weight: Tensor, gamma: float, n: int) -> NStep:
    """The n-step return before bootstrapping, so that a network need value only the rows that are used."""
    going_on = _continues(last, weight)
    alive, total, steps = weight, torch.zeros_like(reward), torch.zeros_like(reward)
    for k in range(n):
        total = total + gamma**k * alive * _shift(reward, k)
        steps = steps + alive
        alive = alive * _shift(going_on, k)
    columns = torch.arange(reward.shape[1], device=reward.device)
    column = (columns + steps.long() - 1).clamp(min=0)
    discount = weight * gamma**steps * ~terminated.gather(1, column)
    return NStep(total, column, discount)


def first_n_step(reward: Array, terminated: Array, last: Array, weight: Array, gamma: float) -> NStep:
    """:func:`n_step` of the first column alone, with all n = T columns, on numpy arrays: what replayed samples need."""
    alive = weight
    if reward.shape[1] > 1:
        alive = np.cumprod(np.concatenate([weight[:, :1], ~last[:, :-1] * weight[:, 1:]], axis=1), axis=1)
    steps = alive.sum(axis=1)
    column = np.maximum(steps.astype(np.int64) - 1, 0)
    is_over = terminated[:, 0] if reward.shape[1] == 1 else terminated[np.arange(len(column)), column]
    powers = np.power(np.float32(gamma), np.arange(reward.shape[1], dtype=np.float32))
    discount = weight[:, 0] * np.power(np.float32(gamma), steps) * ~is_over
    return NStep((alive * reward) @ powers, column, discount)


def n_step_return(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    gamma: float,
    n: int,
) -> Tensor:
    """n rewards, then the value; fewer where the episode or the data end before."""
    parts = n_step(reward, terminated, last, weight, gamma, n)
    return parts.reward + parts.discount * next_value.gather(1, parts.column)


def _continues(last: Tensor, weight: Tensor) -> Tensor:
    """1 where column t + 1 carries on the episode of column t.

    The weight is looked at as well as ``last``: data with a gap stops there without a final row.
    """
    return ~last * _shift(weight, 1)


def _shift(x: Tensor, k: int) -> Tensor:
    """Column t becomes what was column t + k; zeros come in at the end."""
    if k == 0:
        return x
    return torch.cat([x[:, k:], torch.zeros_like(x[:, :k])], dim=1)


def _scan_backwards(base: Tensor, decay: Tensor) -> Tensor:
    """y[t] = base[t] + decay[t] * y[t + 1], with nothing after the end.

    By doubling: each round lets every column take in as many more as it already holds. Eleven rounds over whole
    tensors do for 2048 columns what a loop would do in 2048 steps, each dearer than its arithmetic.
    """
    reach = 1
    while reach < base.shape[1]:
        base = base + decay * _shift(base, reach)
        decay = decay * _shift(decay, reach)
        reach *= 2
    return base
