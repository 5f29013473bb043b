"""Mixes several samplers in one batch. For each sample one of them is chosen at random, by its weight."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from reverie.core import registry
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.types import Array, State
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span
from reverie.data.sampler import Draw, Sampler


class Part(Config):
    """One sampler of a mixture."""

    weight: float = Field(gt=0)
    """Expected fraction of the batch that it draws, relative to the weights of the others."""
    sampler: Annotated[ComponentConfig, Component("sampler")]
    """The sampler."""


class MixtureSampler:
    """Draws each sample with one of several samplers."""

    class Config(ComponentConfig):
        """The samplers of a mixture."""

        kind: str = "mixture"
        """Several samplers, each draws some of the batch."""
        parts: tuple[Part, ...] = Field(min_length=1)
        """The samplers and their weights."""

    def __init__(self, config: Config, rows: ObservedColumns) -> None:
        self.parts: list[Sampler] = [
            registry.load("sampler", part.sampler.kind)(part.sampler, rows) for part in config.parts
        ]
        weights = np.array([part.weight for part in config.parts])
        self.probabilities = weights / weights.sum()
        self.uses_priorities = any(part.uses_priorities for part in self.parts)

    @staticmethod
    def row_bytes(config: Config) -> int:
        return sum(registry.load("sampler", part.sampler.kind).row_bytes(part.sampler) for part in config.parts)

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        """Samples of parts without priorities have the importance 1."""
        chosen = rng.choice(len(self.parts), count, p=self.probabilities)
        anchors, importance = np.empty(count, np.int64), np.ones(count, np.float32)
        for number, part in enumerate(self.parts):
            is_chosen = chosen == number
            drawn = part.draw(int(is_chosen.sum()), span, rng)
            anchors[is_chosen] = drawn.anchors
            if drawn.importance is not None:
                importance[is_chosen] = drawn.importance
        return Draw(anchors, importance if self.uses_priorities else None)

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        for part in self.parts:
            part.write_priorities(ids, priorities)

    def clear(self) -> None:
        for part in self.parts:
            part.clear()

    def state(self) -> State:
        return {"parts": [part.state() for part in self.parts]}

    def load_state(self, state: State) -> None:
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state(saved)
