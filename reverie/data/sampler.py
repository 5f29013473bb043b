"""Samplers choose the samples of a replay buffer: uniformly here, or newer rows more often.

Anchors are drawn from all stored rows and illegal ones are redrawn (rejection sampling), so no list of legal anchors is
maintained. If few anchors are legal, all of them are listed instead.

More samplers: :mod:`reverie.data.prioritised_sampler`, :mod:`reverie.data.online_sampler`,
:mod:`reverie.data.shuffled_sampler` and :mod:`reverie.data.mixture_sampler`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import TrainingError
from reverie.core.types import Array, State
from reverie.core.wording import count
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, anchor_range, check_anchors, legal_blocks

_ROUNDS = 8
"""Rounds of rejection sampling, each with twice the candidates: enough if 1 anchor in 100 is legal."""


class Draw(NamedTuple):
    """The samples of a batch."""

    anchors: Array
    """Ids of the anchor rows (B,)."""
    importance: Array | None = None
    """Importance weights (B,), float32 and at most 1. None if all are equal."""


class Sampler(Protocol):
    """Chooses samples among the stored rows. Built as ``Sampler(config, rows)``."""

    uses_priorities: bool
    """Whether it needs priorities. If so, every draw has ``importance``."""

    @staticmethod
    def row_bytes(config: Any) -> int:
        """Memory per row of the buffer's capacity."""
        ...

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw: ...

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        """Set the priorities of rows. Ids that are no longer stored are ignored."""
        ...

    def clear(self) -> None:
        """Called after all rows were dropped."""
        ...

    def state(self) -> State: ...

    def load_state(self, state: State) -> None:
        """Called after the rows were loaded."""
        ...


class UniformSampler:
    """Draws independent samples, all legal ones with equal probability."""

    class Config(ComponentConfig):
        """No settings."""

        kind: str = "uniform"
        """All samples with equal probability."""

    uses_priorities = False

    def __init__(self, config: ComponentConfig, rows: ObservedColumns) -> None:
        self.rows = rows

    @staticmethod
    def row_bytes(config: ComponentConfig) -> int:
        return 0

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        if count == 0:
            return Draw(np.empty(0, np.int64))
        low, high = anchor_range(self.rows, span)
        found: list[Array] = []
        missing = count
        for doubling in range(_ROUNDS if high > low else 0):
            candidates = self._propose(low, high, (missing + missing // 4 + 4) << doubling, rng)
            found.append(candidates[check_anchors(self.rows, candidates, span)][:missing])
            missing -= len(found[-1])
            if missing == 0:
                return Draw(found[0] if len(found) == 1 else np.concatenate(found))
        return Draw(np.concatenate([*found, self._draw_from_legal(missing, span, rng)]))

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        pass

    def clear(self) -> None:
        pass

    def state(self) -> State:
        return {}

    def load_state(self, state: State) -> None:
        pass

    def _propose(self, low: int, high: int, count: int, rng: np.random.Generator) -> Array:
        """Candidate ids in [low, high), legal or not."""
        # Twice as fast as rng.integers. The rounding error is negligible for any feasible number of rows.
        return low + (rng.random(count) * (high - low)).astype(np.int64)

    def _choose(self, legal: Array, count: int, rng: np.random.Generator) -> Array:
        """Draw from the legal ids with the same distribution as ``_propose``."""
        return legal[rng.integers(0, len(legal), count)]

    def _draw_from_legal(self, count: int, span: Span, rng: np.random.Generator) -> Array:
        legal = np.concatenate([np.empty(0, np.int64), *legal_blocks(self.rows, span)])
        if len(legal) == 0:
            raise no_legal_sample(self.rows, span)
        return self._choose(legal, count, rng)


class RecencySampler(UniformSampler):
    """Draws newer rows more often. Rows of the same vector step have equal probability."""

    class Config(ComponentConfig):
        """Settings of recency sampling."""

        kind: str = "recency"
        """Newer rows more often."""
        half_life: int = Field(100_000, ge=1)
        """Rows over all envs after which a row is drawn half as often."""

    def __init__(self, config: Config, rows: ObservedColumns) -> None:
        super().__init__(config, rows)
        self._log_decay = -math.log(2) * rows.num_envs / config.half_life
        """Change of a row's log-probability per vector step of age."""

    def _propose(self, low: int, high: int, count: int, rng: np.random.Generator) -> Array:
        """Ages follow a truncated geometric distribution, drawn by inverting its distribution function."""
        num_envs = self.rows.num_envs
        num_steps = (high - low) // num_envs
        range_end = math.expm1(self._log_decay * num_steps)
        age = np.floor(np.log1p(rng.random(count) * range_end) / self._log_decay).astype(np.int64)
        step = high // num_envs - 1 - np.minimum(age, num_steps - 1)
        return step * num_envs + rng.integers(0, num_envs, count)

    def _choose(self, legal: Array, count: int, rng: np.random.Generator) -> Array:
        step = legal // self.rows.num_envs
        probs = np.exp((step.max() - step) * self._log_decay)
        return rng.choice(legal, count, p=probs / probs.sum())


def no_legal_sample(rows: ObservedColumns, span: Span) -> TrainingError:
    needed, stored = span.before + span.after + 1 - span.pad_after, rows.end - rows.oldest
    shorter = "let the algorithm read shorter sequences (algorithm.sequence.length, batch_length or n_step)"
    if stored < needed:
        return TrainingError(
            f"A sample needs {count(needed, 'consecutive row')} of one env, but the buffer holds {stored:,} per env.",
            f"Collect at least {needed * rows.num_envs:,} rows over all envs before the first update, or {shorter}.",
        )
    return TrainingError(
        f"The buffer holds {count(stored, 'row')} per env, but no sample of {count(needed, 'consecutive row')}: "
        "episodes are too short, or their rows are not valid.",
        f"Collect longer episodes, or {shorter}.",
    )
