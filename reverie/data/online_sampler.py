"""What was collected last is served first: every row once, before anything is served again.

As in DreamerV3 (Hafner et al. 2023), whose replay keeps a queue of windows that were just collected. Here nothing is
queued: a cursor per env says how far its rows were served, which is all that has to be saved. Unpadded windows are
laid side by side, so that each row is served once (apart from serving as context); within episodes each legal sample
is served once.
"""

from __future__ import annotations

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.types import Array, State
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_legal
from reverie.data.sampler import Draw, UniformSampler


class OnlineSampler(UniformSampler):
    """New samples in the order in which they were collected; when there are none left, any with the same chance.

    Hooks that read the same buffer share the cursors: a row is new only once. Rows that are dropped before their turn
    came are lost, which shows in too few samples per insert.
    """

    class Config(ComponentConfig):
        """Serving new rows has nothing to set."""

        kind: str = "online"
        """New rows first, each once; then all alike."""

    def __init__(self, config: ComponentConfig, rows: ObservedColumns) -> None:
        super().__init__(config, rows)
        self.clear()

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        new = self._serve(count, span)
        return Draw(np.concatenate([new, super().draw(count - len(new), span, rng).anchors]))

    def clear(self) -> None:
        self._cursors = np.full(self.rows.num_envs, self.rows.oldest)
        """For each env the first vector step at which no sample was served yet."""

    def state(self) -> State:
        return {"cursors": self._cursors.copy()}

    def load_state(self, state: State) -> None:
        self._cursors = np.array(state["cursors"])

    def _serve(self, count: int, span: Span) -> Array:
        """Up to ``count`` anchors; the envs take turns, those that lag behind first."""
        stride = 1 if span.is_within_episode else span.before + 1 + span.after - span.context
        self._cursors = np.maximum(self._cursors, self.rows.oldest)
        served = np.empty(0, np.int64)
        while len(served) < count:
            # Later rows no longer change what is legal here.
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
