"""Where samples may lie: which rows around an anchor belong to a sample, and which anchors are legal.

A sample is named by the id of its anchor row; :class:`Span` says which rows around the anchor belong to it. Usually
a list of the legal slots is kept. Here they are judged when they are asked for, by the flags of the stored rows, so
that one buffer serves every kind of sample and adding a row costs nothing.
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
"""Anchors judged in one go."""


@dataclass(frozen=True)
class Span:
    """The rows of a sample: ``before`` of them precede the anchor, ``after`` follow it.

    Within an episode, rows missing before its start, and up to ``pad_after`` behind its end, are padding.
    """

    before: int
    after: int
    pad_after: int = 0
    is_within_episode: bool = True
    context: int = 0
    """How many of the rows only lead up to the others; they may have been served as others before."""
    history: int = 0
    """Rows before the first one that have to be known unless the episode starts there: frames of its stack."""

    @cached_property
    def offsets(self) -> Array:
        return np.arange(-self.before, self.after + 1)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether legal samples reach equally far from their anchors, so that none has padding."""
        return self.before == self.pad_after == 0

    @cached_property
    def is_step(self) -> bool:
        """A single step within an episode: the commonest sample of all."""
        return self.is_fixed and self.is_within_episode and self.after == 1


class Extent(NamedTuple):
    """How far samples reach from their anchors, as offsets of their first and last real rows."""

    first: Array
    last: Array
    is_legal: Array


def find_extent(columns: ObservedColumns, anchors: Array, span: Span) -> Extent:
    """How far the samples at these stored anchors reach, and whether they may be served."""
    if span.is_within_episode:
        extent = _reach_within_episode(columns, anchors, span)
    else:
        extent = _reach_across_episodes(columns, anchors, span)
    if not span.history:
        return extent
    return extent._replace(is_legal=extent.is_legal & _has_history(columns, anchors, extent.first, span))


def check_anchors(columns: ObservedColumns, anchors: Array, span: Span) -> Array:
    """Which of these anchors, all within :func:`anchor_range`, are legal; quick for single steps."""
    if not span.is_step:
        return find_extent(columns, anchors, span).is_legal
    is_legal = columns.flags.take_is_successor(columns.slots(anchors + columns.num_envs))
    history = _has_history(columns, anchors, 0, span) if span.history else True
    return is_legal if history is True else is_legal & history


def find_legal(columns: ObservedColumns, anchors: Array, span: Span) -> Array:
    """Which of any number of anchors are legal; rows that are not stored are not."""
    blocks = [anchors[begin : begin + _LARGEST_BLOCK] for begin in range(0, len(anchors), _LARGEST_BLOCK)]
    return np.concatenate([np.empty(0, bool), *(find_extent(columns, block, span).is_legal for block in blocks)])


def has_legal(columns: ObservedColumns, span: Span) -> bool:
    """Whether there is any legal sample; nearly always the newest rows tell."""
    return any(len(legal) for legal in legal_blocks(columns, span))


def anchor_range(columns: ObservedColumns, span: Span) -> tuple[int, int]:
    """All ids at which an anchor can lie, as a half-open range; empty if the second is not larger."""
    steps_needed = span.after - span.pad_after
    return columns.oldest * columns.num_envs, (columns.end - steps_needed) * columns.num_envs


def legal_blocks(columns: ObservedColumns, span: Span) -> Iterator[Array]:
    """All legal anchors, newest first, in blocks that grow: whoever needs only one is soon served."""
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
    """Rows hang together until one is final, starts anew, is marked as not valid or is not stored."""
    ids = anchors[:, None] + span.offsets * columns.num_envs
    flags = columns.flags.take(columns.slots(ids)) * columns.holds(ids)  # 0, not even valid, where nothing is stored
    linked = can_continue(flags[:, :-1]) & can_follow(flags[:, 1:])
    before = np.logical_and.accumulate(linked[:, : span.before][:, ::-1], axis=1).sum(axis=1)
    after = np.logical_and.accumulate(linked[:, span.before :], axis=1).sum(axis=1)
    each = np.arange(len(anchors))
    starts = flags[each, span.before - before] & FIRST != 0
    ends = flags[each, span.before + after] & LAST != 0
    starts_well = (before == span.before) | starts
    ends_well = (after == span.after) | (ends & (span.after - after <= span.pad_after))
    is_legal = (flags[:, span.before] & VALID != 0) & starts_well & ends_well
    return Extent(-before, after, is_legal)


def _has_history(columns: ObservedColumns, anchors: Array, first: Array | int, span: Span) -> Array | bool:
    """Where the frames before the first row of a sample are stored, or are none of its episode."""
    known_from = (columns.oldest + span.before + span.history) * columns.num_envs
    if not np.count_nonzero(anchors < known_from):
        return True
    begin = anchors + first * columns.num_envs
    back = np.minimum(columns.episode_steps.take(columns.slots(begin)), span.history)
    return np.asarray(begin // columns.num_envs - back >= columns.oldest)
