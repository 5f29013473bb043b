"""Serves new rows first, each once, before any row is sampled again.

DreamerV3 (Hafner et al. 2023) keeps a queue of new windows for this. Here a cursor per env marks how far its rows were
served, and only cursors are saved. Unpadded windows are consecutive, so each row is served once, apart from serving as
context. For reads within episodes, each legal sample is served once.
"""

from __future__ import annotations

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.types import Array, State
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_legal
from reverie.data.sampler import Draw, UniformSampler


class OnlineSampler(UniformSampler):
    """New samples in the order in which they were collected, then uniform samples.

    Hooks that read the same buffer share the cursors, so a row is new only once. Rows that are dropped before they were
    served are lost: ``samples_per_insert`` is then too low.
    """

    class Config(ComponentConfig):
        """No settings."""

        kind: str = "online"
        """New rows first, each once, then uniform samples."""

    def __init__(self, config: ComponentConfig, rows: ObservedColumns) -> None:
        super().__init__(config, rows)
        self.clear()

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        new = self._serve(count, span)
        return Draw(np.concatenate([new, super().draw(count - len(new), span, rng).anchors]))

    def clear(self) -> None:
        self._cursors = np.full(self.rows.num_envs, self.rows.oldest)
        """First vector step of each env that was not served yet."""

    def state(self) -> State:
        return {"cursors": self._cursors.copy()}

    def load_state(self, state: State) -> None:
        self._cursors = np.array(state["cursors"])

    def _serve(self, count: int, span: Span) -> Array:
        """Up to ``count`` new anchors. The envs with the oldest cursors come first."""
        stride = 1 if span.is_within_episode else span.before + 1 + span.after - span.context
        self._cursors = np.maximum(self._cursors, self.rows.oldest)
        served = np.empty(0, np.int64)
        while len(served) < count:
            # Only anchors whose samples are complete: later rows cannot make them illegal.
            envs = np.flatnonzero(self._cursors + span.after < self.rows.end)
            if len(envs) == 0:
                break
            envs = envs[np.argsort(self._cursors[envs], kind="stable")]
            anchors = self._cursors[envs] * self.rows.num_envs + envs
            is_legal = find_legal(self.rows, anchors, span)
            self._cursors[envs[~is_legal]] += 1
            missing = count - len(served)
            self._cursors[envs[is_legal][:missing]] += stride
            served = np.concatenate([served, anchors[is_legal][:missing]])
        return served
