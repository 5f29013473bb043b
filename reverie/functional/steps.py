"""What algorithms with a replay buffer learn from: steps of n rows, as numpy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from reverie.core.types import Array, Batch, is_last, observation_keys
from reverie.data.rows import transitions
from reverie.functional.returns import first_n_step, n_step


class Steps(NamedTuple):
    """n-step transitions with the weight of each in a mean, and its share of the loss: by importance, too.

    Of single samples these are (B,), and ``start`` and ``reached`` are observations. Of windows they are (B, L), and
    both hold the rows (B, T) that a network with memory has to see: its observations and ``is_first``. Steps start at
    the L rows before the last one; ``column`` of ``reached`` says how many rows behind the first of them each one ends.
    """

    start: dict[str, Array]
    reached: dict[str, Array]
    action: Array
    reward: Array
    discount: Array
    """Of the value of the state reached: 0 where that is terminal."""
    weight: Array
    share: Array


def n_step_transitions(batch: Batch, gamma: float) -> Steps:
    """Rows (B, n + 1) as steps (B,): where they start and end, what was done and earned between."""
    now, then, weight = transitions(batch)
    keys = observation_keys(batch)
    earned = first_n_step(then["reward"], then["terminated"], is_last(then), weight, gamma)
    if weight.shape[1] == 1:
        reached = {key: then[key][:, 0] for key in keys}
    else:
        reached = {key: then[key][np.arange(len(weight)), earned.column] for key in keys}
    start = {key: now[key][:, 0] for key in keys}
    even = weight[:, 0] / max(weight[:, 0].sum(), 1e-8)
    share = even * batch["importance"][:, 0] if "importance" in batch else even
    return Steps(start, reached, now["action"][:, 0], earned.reward, earned.discount, even, share)


def window_transitions(batch: Batch, gamma: float, n: int, burn_in: int) -> Steps:
    """Windows (B, T) as the steps of their rows behind the first ``burn_in``: (B, T - burn_in - 1).

    As for single samples only the end of its episode makes a step shorter than n. The last rows of a window whose n
    rows lie outside of it have no target and the weight 0.
    """
    now, then, weight = transitions(batch)
    flags = (then["terminated"], is_last(then))
    told = (torch.as_tensor(array) for array in (then["reward"], *flags, weight))
    reward, column, discount = (np.asarray(part) for part in n_step(*told, gamma, n))
    columns = np.arange(weight.shape[1])
    is_whole = (column - columns == n - 1) | np.take_along_axis(flags[1], column, 1)
    weight = (weight * is_whole)[:, burn_in:]
    even = weight / max(weight.sum(), 1e-8)
    share = even * now["importance"][:, burn_in:] if "importance" in batch else even
    rows = {key: batch[key] for key in (*observation_keys(batch), "is_first")}
    reached = {**rows, "column": (column + 1 - burn_in)[:, burn_in:]}
    steps = (now["action"], reward, discount)
    return Steps(rows, reached, *(part[:, burn_in:] for part in steps), even, share)
