"""Passes over all samples in random order, as in supervised learning."""

from __future__ import annotations

import dataclasses

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.types import Array, State
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_legal, legal_blocks
from reverie.data.sampler import Draw, UniformSampler, no_legal_sample


class ShuffledSampler(UniformSampler):
    """Draws without replacement.

    A pass covers the samples that are legal when it starts. Rows added during a pass wait for the next one, rows
    dropped before their turn are skipped. Each kind of read has its own passes.
    """

    class Config(ComponentConfig):
        """No settings."""

        kind: str = "shuffled"
        """Every sample once, in random order, before any is drawn again."""

    def __init__(self, config: ComponentConfig, rows: ObservedColumns) -> None:
        super().__init__(config, rows)
        self.clear()

    @staticmethod
    def row_bytes(config: ComponentConfig) -> int:
        """The order of one pass, for one kind of read."""
        return np.dtype(np.int64).itemsize

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        remaining = self._remaining.get(span, np.empty(0, np.int64))
        drawn = np.empty(0, np.int64)
        while len(drawn) < count:
            if len(remaining) == 0:
                remaining = self._start_pass(span, rng)
            missing = count - len(drawn)
            turn, remaining = remaining[:missing], remaining[missing:]
            drawn = np.concatenate([drawn, turn[find_legal(self.rows, turn, span)]])
        self._remaining[span] = remaining
        return Draw(drawn)

    def clear(self) -> None:
        self._remaining: dict[Span, Array] = {}
        """Anchors of each current pass that were not drawn yet, in order."""

    def state(self) -> State:
        passes = [{"span": dataclasses.asdict(span), "anchors": rest.copy()} for span, rest in self._remaining.items()]
        return {"passes": passes}

    def load_state(self, state: State) -> None:
        self._remaining = {Span(**saved["span"]): np.array(saved["anchors"], np.int64) for saved in state["passes"]}

    def _start_pass(self, span: Span, rng: np.random.Generator) -> Array:
        legal = np.concatenate([np.empty(0, np.int64), *legal_blocks(self.rows, span)])
        if len(legal) == 0:
            raise no_legal_sample(self.rows, span)
        return rng.permutation(legal)
