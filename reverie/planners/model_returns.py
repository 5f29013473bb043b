"""Scores of candidate actions by what a world model predicts for them.

A model offers ``initial``, ``observe``, ``imagine`` and ``predict``. Planning needs the last two: imagine candidates
from the current latent, predict rewards and continuation, and perhaps value the last latent. Whoever knows the model
writes that as one function, :data:`Imagine`, over all candidates of all envs in one flat batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from reverie.planners.planner import Score

State = TypeVar("State", bound=tuple[Tensor, ...])


class Outcome(NamedTuple):
    """What M imagined sequences of H actions lead to."""

    rewards: Tensor  # (H, M): for each action
    continues: Tensor  # (H, M): probability that the episode goes on after it, times the discount
    values: Tensor | None = None  # (M): of the last state; None: nothing is expected after the horizon


Imagine = Callable[[Tensor, int], Outcome]
"""From actions (H, M, W) and the number of the iteration to their outcome; M = N * C, candidates of one env adjoin."""


def score_by(imagine: Imagine) -> Score:
    """A score for planners: the return that a model predicts for each candidate."""

    def score(candidates: Tensor, iteration: int) -> Tensor:
        return predicted_return(*imagine(candidates.flatten(1, 2), iteration)).view(candidates.shape[1:3])

    return score


def predicted_return(rewards: Tensor, continues: Tensor, values: Tensor | None = None) -> Tensor:
    """Discounted sum (M) of rewards (H, M) and the final values (M)."""
    total = torch.zeros_like(rewards[0]) if values is None else values
    for reward, continuation in zip(reversed(rewards.unbind(0)), reversed(continues.unbind(0)), strict=True):
        total = reward + continuation * total
    return total


def repeat_each(state: State, count: int) -> State:
    """A named tuple of tensors (N, ...) with every entry repeated for its candidates: (N * count, ...)."""
    return type(state)(*(part.repeat_interleave(count, 0) for part in state))
