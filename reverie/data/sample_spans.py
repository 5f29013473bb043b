"""Which rows belong to a sample, and which samples are legal.

A sample is identified by the id of its anchor row; :class:`Span` defines the rows around the anchor that belong to it.
Other buffers maintain a list of legal anchors. Here the flags of the stored rows decide when a sample is drawn, so one
buffer serves every kind of sample and adding a row costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from reverie.core.types import Array
from reverie.data.columns import ObservedColumns
from reverie.data.derived_columns import FIRST, LAST, VALID, can_continue, can_follow

_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 16384
"""Numbers of anchors that are checked at a time."""


@dataclass(frozen=True)
class Span:
    """The rows of a sample: ``before`` rows, the anchor, ``after`` rows.

    Within an episode, rows before its first row, and up to ``pad_after`` rows after its final row, are padding.
    """

    before: int
    after: int
    pad_after: int = 0
    is_within_episode: bool = True
    context: int = 0
    """How many of the first rows are context. The online sampler may have served them before."""
    history: int = 0
    """Rows of the same episode before the sample that must also be stored, for the frame stacks."""

    @cached_property
    def offsets(self) -> Array:
        return np.arange(-self.before, self.after + 1)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether legal samples have no padding."""
        return self.before == self.pad_after == 0

    @cached_property
    def is_step(self) -> bool:
        """Whether a sample is one transition, the most common read."""
        return self.is_fixed and self.is_within_episode and self.after == 1


class Extent(NamedTuple):
    """Offsets of the first and last real row of each sample from its anchor, and whether the sample is legal."""

    first: Array
    last: Array
    is_legal: Array


def find_extent(columns: ObservedColumns, anchors: Array, span: Span) -> Extent:
    """The extent of the samples at these stored anchors."""
    if span.is_within_episode:
        extent = _reach_within_episode(columns, anchors, span)
    else:
        extent = _reach_across_episodes(columns, anchors, span)
    if not span.history:
        return extent
    return extent._replace(is_legal=extent.is_legal & _has_history(columns, anchors, extent.first, span))


def check_anchors(columns: ObservedColumns, anchors: Array, span: Span) -> Array:
    """Whether each anchor is legal. All must be within :func:`anchor_range`. Has a fast path for single transitions."""
    if not span.is_step:
        return find_extent(columns, anchors, span).is_legal
    is_legal = columns.flags.take_is_successor(columns.slots(anchors + columns.num_envs))
    history = _has_history(columns, anchors, 0, span) if span.history else True
    return is_legal if history is True else is_legal & history


def find_legal(columns: ObservedColumns, anchors: Array, span: Span) -> Array:
    """Whether each anchor is legal, for any number of anchors. Anchors that are not stored are illegal."""
    blocks = [anchors[begin : begin + _LARGEST_BLOCK] for begin in range(0, len(anchors), _LARGEST_BLOCK)]
    return np.concatenate([np.empty(0, bool), *(find_extent(columns, block, span).is_legal for block in blocks)])


def has_legal(columns: ObservedColumns, span: Span) -> bool:
    """Whether any sample is legal. Starts with the newest rows, which nearly always decide."""
    return any(len(legal) for legal in legal_blocks(columns, span))


def anchor_range(columns: ObservedColumns, span: Span) -> tuple[int, int]:
    """The ids [low, high) that can be anchors. Empty if ``high <= low``."""
    steps_needed = span.after - span.pad_after
    return columns.oldest * columns.num_envs, (columns.end - steps_needed) * columns.num_envs


def legal_blocks(columns: ObservedColumns, span: Span) -> Iterator[Array]:
    """All legal anchors in blocks, newest block first. Blocks grow, so that finding a single anchor is fast."""
    low, high = anchor_range(columns, span)
    size = _SMALLEST_BLOCK
    while high > low:
        begin = max(low, high - size)
        ids = np.arange(begin, high)
        yield ids[find_extent(columns, ids, span).is_legal]
        high, size = begin, min(2 * size, _LARGEST_BLOCK)


def _reach_across_episodes(columns: ObservedColumns, anchors: Array, span: Span) -> Extent:
    ends = anchors + np.array([[-span.before], [span.after]]) * columns.num_envs
    is_legal = columns.holds(ends).all(axis=0) & (columns.flags.take(columns.slots(anchors)) & VALID).view(bool)
    return Extent(np.full(len(anchors), -span.before), np.full(len(anchors), span.after), is_legal)


def _reach_within_episode(columns: ObservedColumns, anchors: Array, span: Span) -> Extent:
    """A sample extends from its anchor until an episode ends or starts, or a row is not valid or not stored."""
    ids = anchors[:, None] + span.offsets * columns.num_envs
    flags = columns.flags.take(columns.slots(ids)) * columns.holds(ids)  # 0, so not VALID, for rows that are not stored
    is_linked = can_continue(flags[:, :-1]) & can_follow(flags[:, 1:])
    before = np.logical_and.accumulate(is_linked[:, : span.before][:, ::-1], axis=1).sum(axis=1)
    after = np.logical_and.accumulate(is_linked[:, span.before :], axis=1).sum(axis=1)
    samples = np.arange(len(anchors))
    is_start = flags[samples, span.before - before] & FIRST != 0
    is_end = flags[samples, span.before + after] & LAST != 0
    begins_legally = (before == span.before) | is_start
    ends_legally = (after == span.after) | (is_end & (span.after - after <= span.pad_after))
    is_legal = (flags[:, span.before] & VALID != 0) & begins_legally & ends_legally
    return Extent(-before, after, is_legal)


def _has_history(columns: ObservedColumns, anchors: Array, first: Array | int, span: Span) -> Array | bool:
    """Whether the earlier frames that the first row of each sample needs are stored. True: all of them."""
    known_from = (columns.oldest + span.before + span.history) * columns.num_envs
    if not np.count_nonzero(anchors < known_from):
        return True
    begin = anchors + first * columns.num_envs
    back = np.minimum(columns.episode_steps.take(columns.slots(begin)), span.history)
    return np.asarray(begin // columns.num_envs - back >= columns.oldest)
