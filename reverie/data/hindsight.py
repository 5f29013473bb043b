"""Hindsight experience replay: Andrychowicz et al. 2017 (arXiv 1707.01495).

Some of the sampled transitions get another goal: one that the same episode really reached. Rewards, and the end of the
episode where it depends on the goal, are computed anew for all of them at once. Rows stay as they were collected;
only the batch changes, so nothing is saved and any sampler can be used.

Departures from the paper: goals are drawn when a batch is sampled and not when an episode ends, as in its published
code. So an episode that still runs counts with the rows that it has so far, and a transition of n steps gets one goal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from reverie.core.config import Config
from reverie.core.errors import ConfigError
from reverie.core.reads import Read, Transitions
from reverie.core.types import Array, Row
from reverie.data.columns import ObservedColumns
from reverie.envs.goals import ACHIEVED, DESIRED

if TYPE_CHECKING:
    from reverie.envs.goals import Goals


class HindsightConfig(Config):
    """Which goals replace those of sampled transitions."""

    strategy: Literal["future", "final", "episode"] = "future"
    """The new goal was achieved in a later row of the episode (future), in its last row (final), or in any row but the
    first (episode)."""
    ratio: float = Field(0.8, ge=0, le=1)
    """Probability that a transition gets a new goal. 0.8 is four new goals for each original one."""


class Hindsight:
    """Replaces goals in batches of transitions."""

    def __init__(self, config: HindsightConfig, goals: Goals, rows: ObservedColumns) -> None:
        self.config = config
        self.goals = goals
        self.rows = rows

    def relabel(self, batch: Row, rng: np.random.Generator) -> None:
        """Give some of the transitions (B, n + 1) of a batch another goal, in place.

        An episode that terminated, but would not have with the new goal, counts as truncated.
        """
        is_chosen, position = rng.random((2, len(batch["id"])))
        chosen = np.flatnonzero(is_chosen < self.config.ratio)
        achieved = batch[ACHIEVED][chosen, 1:]  # (K, n, ...), of the rows where rewards arrive
        goals = self.rows.take(ACHIEVED, self.rows.slots(self._draw(batch["id"][chosen, 0], position[chosen])))
        batch[DESIRED][chosen] = goals[:, None]
        pairs = _flat(achieved), _flat(np.broadcast_to(goals[:, None], achieved.shape))
        batch["reward"][chosen, 1:] = self.goals.rewards(*pairs).reshape(achieved.shape[:2])
        if self.goals.terminated is not None:
            ends = self.goals.terminated(*pairs).reshape(achieved.shape[:2]).astype(bool)
            batch["truncated"][chosen, 1:] |= batch["terminated"][chosen, 1:] & ~ends
            batch["terminated"][chosen, 1:] = ends

    def _draw(self, anchors: Array, position: Array) -> Array:
        """The rows whose achieved goals become the new ones. ``position`` is uniform in [0, 1)."""
        first, last = self.rows.bounds.find(anchors)
        if self.config.strategy == "final":
            return last
        begin = (anchors if self.config.strategy == "future" else first) + self.rows.num_envs
        count = (last - begin) // self.rows.num_envs + 1
        return np.asarray(begin + (position * count).astype(np.int64) * self.rows.num_envs)


def check_hindsight(buffer: str, read: Read) -> None:
    """Refuse reads whose samples may span several episodes, and so several goals."""
    if not isinstance(read, Transitions):
        raise ConfigError(
            f"Hindsight relabels transitions, but {type(read).__name__} is what the algorithm reads from the buffer"
            f"{f' {buffer}' if buffer else ''}.",
            "Remove the buffer's hindsight, or use dqn or sac without a recurrent network.",
        )


def _flat(values: Array) -> Array:
    """(K, n, ...) as (K * n, ...)."""
    return values.reshape(-1, *values.shape[2:])
