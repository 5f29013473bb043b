"""How a replay buffer draws its samples: all alike, or the newer the more likely.

Anchors are drawn from all stored rows, and those whose span does not fit are drawn again, which gives every legal one
its right share without keeping a list of them. When few fit, they are all looked up instead.

The other samplers: :mod:`reverie.data.prioritised_sampler`, :mod:`reverie.data.online_sampler` and
:mod:`reverie.data.mixture_sampler`.
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
"""Rounds of drawing, with ever more to spare: enough while 1 anchor in 100 is legal."""


class Draw(NamedTuple):
    """Samples, named by their anchors (B,)."""

    anchors: Array
    importance: Array | None = None
    """How much each counts in a mean (B,), float32 and at most 1; None where all count the same."""


class Sampler(Protocol):
    """Chooses samples among the stored rows. Built as ``Sampler(config, rows)``."""

    uses_priorities: bool
    """Whether it wants to be told priorities; if so, every draw has ``importance``."""

    @staticmethod
    def row_bytes(config: Any) -> int:
        """Memory that one with this config takes for each row which the buffer has room for."""
        ...

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw: ...

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        """How much there was to learn from rows; rows no longer stored are passed over."""
        ...

    def clear(self) -> None:
        """All rows were forgotten."""
        ...

    def state(self) -> State: ...

    def load_state(self, state: State) -> None:
        """Called when the rows are back in their slots."""
        ...


class UniformSampler:
    """Every legal sample with the same chance."""

    class Config(ComponentConfig):
        """A uniform sampler has nothing to set."""

        kind: str = "uniform"
        """All rows alike."""

    uses_priorities = False

    def __init__(self, config: ComponentConfig, rows: ObservedColumns) -> None:
        self.rows = rows

    @staticmethod
    def row_bytes(config: ComponentConfig) -> int:
        """Nothing is kept."""
        return 0

    def draw(self, count: int, span: Span, rng: np.random.Generator) -> Draw:
        """Independent samples."""
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
        return Draw(np.concatenate([*found, self._look_up(missing, span, rng)]))

    def write_priorities(self, ids: Array, priorities: Array) -> None:
        """They change nothing here."""

    def clear(self) -> None:
        """There is nothing to forget."""

    def state(self) -> State:
        return {}

    def load_state(self, state: State) -> None:
        """There is nothing to remember."""

    def _propose(self, low: int, high: int, count: int, rng: np.random.Generator) -> Array:
        """Ids from ``low`` up to below ``high``, legal or not."""
        # Half the time of rng.integers; rows are far too few for the rounding to show.
        return low + (rng.random(count) * (high - low)).astype(np.int64)

    def _choose(self, legal: Array, count: int, rng: np.random.Generator) -> Array:
        """Some of the legal ids, as likely as ``_propose`` gives them."""
        return legal[rng.integers(0, len(legal), count)]

    def _look_up(self, count: int, span: Span, rng: np.random.Generator) -> Array:
        legal = np.concatenate([np.empty(0, np.int64), *legal_blocks(self.rows, span)])
        if len(legal) == 0:
            raise no_legal_sample(self.rows, span)
        return self._choose(legal, count, rng)


class RecencySampler(UniformSampler):
    """The newer the more likely; rows of one moment are alike, whichever env they come from."""

    class Config(ComponentConfig):
        """How fast old rows fade."""

        kind: str = "recency"
        """Newer rows more often."""
        half_life: int = Field(100_000, ge=1)
        """Rows over all envs after which a row is drawn half as often."""

    def __init__(self, config: Config, rows: ObservedColumns) -> None:
        super().__init__(config, rows)
        self._fading = -math.log(2) * rows.num_envs / config.half_life
        """What a vector step of age adds to the logarithm of a row's chance."""

    def _propose(self, low: int, high: int, count: int, rng: np.random.Generator) -> Array:
        """Ages are geometric, cut where the rows end: the inverse of their distribution function."""
        num_envs = self.rows.num_envs
        num_steps = (high - low) // num_envs
        reach = math.expm1(self._fading * num_steps)
        age = np.floor(np.log1p(rng.random(count) * reach) / self._fading).astype(np.int64)
        step = high // num_envs - 1 - np.minimum(age, num_steps - 1)
        return step * num_envs + rng.integers(0, num_envs, count)

    def _choose(self, legal: Array, count: int, rng: np.random.Generator) -> Array:
        step = legal // self.rows.num_envs
        chance = np.exp((step.max() - step) * self._fading)
        return rng.choice(legal, count, p=chance / chance.sum())


def no_legal_sample(rows: ObservedColumns, span: Span) -> TrainingError:
    needed, stored = span.before + span.after + 1 - span.pad_after, rows.end - rows.oldest
    shorter = "let the algorithm read shorter sequences (algorithm.sequence.length, batch_length or n_step)"
    if stored < needed:
        return TrainingError(
            f"A sample needs {count(needed, 'row')} of one env in a row, and the buffer holds {stored:,} of each.",
            f"Collect {needed * rows.num_envs:,} rows or more before the first update, with all envs, or {shorter}.",
        )
    return TrainingError(
        f"None of the {count(stored, 'stored row')} of an env can be the start of a sample of {count(needed, 'row')}: "
        "episodes are too short, or the rows do not count.",
        f"Collect longer episodes, or {shorter}.",
    )
