"""Where samples may lie: which rows around an anchor belong to a sample, and which anchors are legal.

A sample is named by the id of its anchor row; :class:`Span` says which rows around the anchor belong to it. Usually
a list of the legal places is kept. Here they are judged when they are asked for, by the flags of the stored rows, so
that one buffer serves every kind of sample and adding a row costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reverie.core.types import Array, is_last
from reverie.data.columns import ObservedColumns

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

    @property
    def offsets(self) -> Array:
        return np.arange(-self.before, self.after + 1)


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
    begin = _first_steps_with_history(columns, span.history)
    step, env = np.divmod(anchors, columns.num_envs)
    return extent._replace(is_legal=extent.is_legal & (step + extent.first >= begin[env]))


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
    is_legal = columns.holds(ends).all(axis=0) & columns.gather(anchors, ["valid"])["valid"]
    return Extent(np.full(len(anchors), -span.before), np.full(len(anchors), span.after), is_legal)


def _reach_within_episode(columns: ObservedColumns, anchors: Array, span: Span) -> Extent:
    """Rows hang together until one is final, starts anew, is marked as not valid or is not stored."""
    ids = anchors[:, None] + span.offsets * columns.num_envs
    rows = columns.gather(ids, ["is_first", "terminated", "truncated", "valid"])
    stored = columns.holds(ids) & rows["valid"]
    last, first = stored & is_last(rows), stored & rows["is_first"]
    linked = stored[:, :-1] & stored[:, 1:] & ~last[:, :-1] & ~first[:, 1:]
    before = np.logical_and.accumulate(linked[:, : span.before][:, ::-1], axis=1).sum(axis=1)
    after = np.logical_and.accumulate(linked[:, span.before :], axis=1).sum(axis=1)
    each = np.arange(len(anchors))
    starts_well = (before == span.before) | first[each, span.before - before]
    ends_well = (after == span.after) | (last[each, span.before + after] & (span.after - after <= span.pad_after))
    return Extent(-before, after, stored[:, span.before] & starts_well & ends_well)


def _first_steps_with_history(columns: ObservedColumns, history: int) -> Array:
    """For each env the first step from which on stacks of frames can be put together: (N,)."""
    steps = np.arange(columns.oldest, min(columns.oldest + history, columns.end))
    ids = steps[:, None] * columns.num_envs + np.arange(columns.num_envs)
    is_first = columns.gather(ids, ["is_first"])["is_first"]
    return columns.oldest + np.where(is_first.any(axis=0), is_first.argmax(axis=0), history)
