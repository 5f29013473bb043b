"""Populations: the envs of one vector act with different parameters, one candidate per episode.

With N envs, env i plays the candidates i, i + N, i + 2N, ... modulo the population's size. The candidate is part of the
carry and of the extras, so ``act`` changes no state and a resumed run continues with the same candidates.
``collect: {episodes: E}`` starts every env anew: with E a multiple of the size, all candidates play equally often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reverie.core.types import Array, Batch, Carry, Row

CANDIDATE = "candidate"
"""Name of the column, in the carry and in rows."""


class CandidateReturns(NamedTuple):
    """Results of the candidates of a population (C,)."""

    mean: Array
    """Mean return; NaN for candidates without a finished episode."""
    episodes: Array


def initial_candidates(num_envs: int) -> Carry:
    """The carry before the first episode."""
    return {CANDIDATE: np.arange(num_envs) - num_envs}


def assign_candidates(now: Row, carry: Carry, size: int) -> Array:
    """The candidate (N,) that acts in each arriving row: the next one where an episode starts."""
    candidates = np.asarray(carry[CANDIDATE])
    assigned: Array = np.where(now["is_first"], (candidates + len(candidates)) % size, candidates)
    return assigned


def candidate_returns(batch: Batch, size: int) -> CandidateReturns:
    """Undiscounted returns per candidate, from whole episodes (E, T) with a column ``candidate``."""
    returns = (batch["reward"] * batch["valid"]).sum(1)
    candidates = np.asarray(batch[CANDIDATE])[:, 0]
    episodes = np.bincount(candidates, minlength=size)
    sums = np.bincount(candidates, returns, minlength=size)
    return CandidateReturns(np.divide(sums, episodes, out=np.full(size, np.nan), where=episodes > 0), episodes)
