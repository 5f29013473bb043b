"""n-step transitions from replayed rows, for algorithms with a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from reverie.core.types import Batch, is_last, observation_keys
from reverie.data.rows import transitions
from reverie.functional.returns import first_n_step, n_step


class TransitionBatch(NamedTuple):
    """n-step transitions as numpy arrays, or as tensors.

    Single transitions are (B,). Those of sequences are (B, L), and their ``obs`` and ``next_obs`` hold all rows (B, T)
    with ``is_first``, because a recurrent network has to see them. Transitions start at the L rows before the last one.
    ``next_obs["column"]`` (B, L) says where they end, counted from the row where the first of them starts.
    """

    obs: dict[str, Any]
    next_obs: dict[str, Any]
    actions: Any
    rewards: Any  # discounted sums of n rewards
    discounts: Any  # of the value of next_obs: 0 where the episode terminated
    weights: Any  # sum to 1; 0 for final rows and padding
    importance_weights: Any  # weights times the importance weights of prioritised sampling

    def flatten(self) -> TransitionBatch:
        """Transitions (B, L) of sequences as (N,). Actions get a last axis in any case: (N, A)."""
        count = self.weights.size
        columns = (column.reshape(count) for column in self[3:])
        return TransitionBatch(self.obs, self.next_obs, self.actions.reshape(count, -1), *columns)


def n_step_transitions(batch: Batch, gamma: float) -> TransitionBatch:
    """Transitions (B,) from rows (B, n + 1)."""
    now, then, weight = transitions(batch)
    keys = observation_keys(batch)
    reward, column, discount = first_n_step(then["reward"], then["terminated"], is_last(then), weight, gamma)
    if weight.shape[1] == 1:
        next_obs = {key: then[key][:, 0] for key in keys}
    else:
        next_obs = {key: then[key][np.arange(len(weight)), column] for key in keys}
    obs = {key: now[key][:, 0] for key in keys}
    weights = weight[:, 0] / max(weight[:, 0].sum(), 1e-8)
    importance_weights = weights * batch["importance"][:, 0] if "importance" in batch else weights
    return TransitionBatch(obs, next_obs, now["action"][:, 0], reward, discount, weights, importance_weights)


def sequence_transitions(batch: Batch, gamma: float, n: int, burn_in: int) -> TransitionBatch:
    """Transitions (B, T - burn_in - 1) from all rows of sequences (B, T) after the first ``burn_in``.

    Only the end of an episode makes a transition shorter than n. The last rows of a sequence, whose n-th next row is
    outside it, have no target and weight 0.
    """
    now, then, weight = transitions(batch)
    last = is_last(then)
    as_tensor = torch.as_tensor
    rewards, terminated = as_tensor(then["reward"]), as_tensor(then["terminated"])
    returns = n_step(rewards, terminated, as_tensor(last), as_tensor(weight), gamma, n)
    reward, column, discount = (np.asarray(x) for x in returns)
    is_whole = (column - np.arange(weight.shape[1]) == n - 1) | np.take_along_axis(last, column, 1)
    weight = (weight * is_whole)[:, burn_in:]
    weights = weight / max(weight.sum(), 1e-8)
    importance_weights = weights * now["importance"][:, burn_in:] if "importance" in batch else weights
    obs = {key: batch[key] for key in (*observation_keys(batch), "is_first")}
    next_obs = {**obs, "column": (column + 1 - burn_in)[:, burn_in:]}
    actions, reward, discount = (x[:, burn_in:] for x in (now["action"], reward, discount))
    return TransitionBatch(obs, next_obs, actions, reward, discount, weights, importance_weights)


Microbatch = TypeVar("Microbatch", bound=tuple[Any, ...])


def split(batch: Microbatch, size: int) -> list[Microbatch]:
    """Microbatches of ``size`` samples from a named tuple of tensors that starts like a flat :class:`TransitionBatch`.

    The observations are those of samples, (B, ...) or (B, T, ...). All other fields are (N, ...), with N = B or
    N = B * L.
    """
    count = len(next(iter(batch[0].values())))
    if size >= count:
        return [batch]
    length = len(batch[2]) // count
    make = type(batch)._make  # type: ignore[attr-defined]
    return [make(_take(field, begin, size, length) for field in batch) for begin in range(0, count, size)]


def _take(field: Any, begin: int, size: int, length: int) -> Any:
    if isinstance(field, Mapping):
        return {key: value[begin : begin + size] for key, value in field.items()}
    return None if field is None else field[begin * length : (begin + size) * length]
