"""Hand-made streams of rows, and a slow and plain list of all samples that are legal on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reverie.core.types import Row
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_extent

STREAMS = (
    # f first row, t terminated, c cut (truncated), . in between, g a new start out of nothing, x not valid
    "..tf...cft" "f.....g.gf" ".tf...tfc.",
    "f......gf." "tf.c.fxxxf" "..t.f.tf..",
)  # fmt: skip
Sample = tuple[int, int, int]
"""Env, first real row and the row behind the last real one."""


def make_columns(streams: tuple[str, ...] = STREAMS, chunk_steps: int = 3, num_chunks: int = 20) -> ObservedColumns:
    columns = ObservedColumns(len(streams), chunk_steps, num_chunks)
    for letters in zip(*streams, strict=True):
        columns.append(make_row(letters))
    return columns


def make_row(letters: Sequence[str]) -> Row:
    """One row of every env."""
    return {
        "is_first": np.array([letter in "fg" for letter in letters]),
        "terminated": np.array([letter == "t" for letter in letters]),
        "truncated": np.array([letter == "c" for letter in letters]),
        "valid": np.array([letter != "x" for letter in letters]),
    }


def episodes(stream: str, oldest: int) -> list[tuple[int, int]]:
    """Stretches of rows that followed each other: first row and the row behind the last."""
    found, start = [], oldest
    for row in range(oldest, len(stream)):
        if stream[row] in "fgx" and start < row:
            found.append((start, row))
            start = row
        if stream[row] in "tcx":
            found.append((start, row + 1))
            start = row + 1
    return [(a, b) for a, b in [*found, (start, len(stream))] if a < b and stream[a] != "x"]


def legal_within_episodes(streams: tuple[str, ...], oldest: int, span: Span) -> set[Sample]:
    """All placements of the span on each episode, moved along row by row."""
    legal: set[Sample] = set()
    for env, stream in enumerate(streams):
        for start, stop in episodes(stream, oldest):
            room_before = span.before if stream[start] in "fg" else 0
            room_after = span.pad_after if stream[stop - 1] in "tc" else 0
            length = span.before + 1 + span.after
            for begin in range(start - room_before, stop + room_after - length + 1):
                legal.add((env, max(begin, start), min(begin + length, stop)))
    return legal


def samples_of(columns: ObservedColumns, anchors: np.ndarray, span: Span) -> list[Sample]:
    extent = find_extent(columns, anchors, span)
    steps, envs = np.divmod(anchors, columns.num_envs)
    firsts, stops = steps + extent.first, steps + extent.last + 1
    return list(zip(envs.tolist(), firsts.tolist(), stops.tolist(), strict=True))


def legal_windows(streams: tuple[str, ...], oldest: int, length: int) -> set[Sample]:
    """All windows that lie between the oldest row and the write head and start at a row that counts."""
    starts = range(oldest, len(streams[0]) - length + 1)
    return {(env, t, t + length) for env, stream in enumerate(streams) for t in starts if stream[t] != "x"}


def legal_samples(streams: tuple[str, ...], oldest: int, span: Span) -> set[Sample]:
    """Of either kind, without those whose first row was shown with frames that are gone."""
    if span.is_within_episode:
        legal = legal_within_episodes(streams, oldest, span)
    else:
        legal = legal_windows(streams, oldest, span.after + 1)

    def has_frames(env: int, row: int) -> bool:
        known = streams[env][max(oldest, row - span.history) : row + 1]
        return len(known) == span.history + 1 or "f" in known or "g" in known

    return {(env, first, stop) for env, first, stop in legal if has_frames(env, first)}


def assert_chances(anchors: np.ndarray, chances: Mapping[int, float]) -> None:
    """These and only these ids were drawn, as often as their chances say (which need not sum to 1)."""
    found = np.array([(anchors == anchor).sum() for anchor in chances])
    assert found.sum() == len(anchors), "ids were drawn that have no chance"
    expected = np.array(list(chances.values())) / sum(chances.values()) * len(anchors)
    assert expected.min() > 5, "too few draws to tell"
    chi_square, freedom = ((found - expected) ** 2 / expected).sum(), len(chances) - 1
    # The bound that pure chance passes once in 30,000 times (Wilson and Hilferty's cube root).
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 4 * np.sqrt(2 / (9 * freedom))) ** 3


SPANS = {
    "1 step": Span(0, 1, 0),
    "2 steps": Span(0, 2, 1),
    "4 steps": Span(0, 4, 3),
    "6 steps": Span(0, 6, 5),
    "whole": Span(0, 3, 0),
    "padded behind": Span(0, 4, 2),
    "padded before": Span(2, 1, 0),
    "padded on both sides": Span(2, 3, 2),
}
