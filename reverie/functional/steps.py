"""What algorithms with a replay buffer learn from: steps of n rows, as numpy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reverie.core.types import Array, Batch, is_last, observation_keys
from reverie.data.rows import transitions
from reverie.functional.returns import first_n_step


class Steps(NamedTuple):
    """n-step transitions with the weight of each in a mean, and its share of the loss: by importance, too."""

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
