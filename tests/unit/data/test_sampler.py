"""Where samples may lie, compared with a slow and plain list of all legal ones on hand-made streams."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.errors import TrainingError
from reverie.core.rng import make_generator
from reverie.data import sampler
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, has_legal
from reverie.data.sampler import UniformSampler
from tests.unit.data.streams import (
    SPANS,
    STREAMS,
    Sample,
    legal_windows,
    legal_within_episodes,
    make_columns,
    samples_of,
)  # fmt: skip


def uniform(columns: ObservedColumns) -> UniformSampler:
    return UniformSampler(UniformSampler.Config(), columns)


def drawn(columns: ObservedColumns, span: Span, name: str = "draws") -> list[Sample]:
    rng = make_generator(name)
    anchors = np.concatenate([uniform(columns).draw(50, span, rng).anchors for _ in range(60)])
    assert len(anchors) == 3000
    return samples_of(columns, anchors, span)


@pytest.mark.parametrize("rounds", [0, 8], ids=["looked up", "drawn"])
@pytest.mark.parametrize("num_chunks", [20, 8], ids=["all", "wrapped"])
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_within_episodes_exactly_the_legal_samples_appear(
    span: Span, num_chunks: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_ROUNDS", rounds)
    columns = make_columns(num_chunks=num_chunks)
    legal = legal_within_episodes(STREAMS, columns.oldest, span)
    assert len(legal) > 3
    assert set(drawn(columns, span)) == legal


@pytest.mark.parametrize("num_chunks", [20, 8], ids=["all", "wrapped"])
@pytest.mark.parametrize("length", [1, 4, 12])
def test_windows_lie_anywhere_but_over_the_write_head(length: int, num_chunks: int) -> None:
    columns = make_columns(num_chunks=num_chunks)
    assert (columns.oldest > 0) is (num_chunks == 8)
    legal = legal_windows(STREAMS, columns.oldest, length)
    assert set(drawn(columns, Span(0, length - 1, is_within_episode=False))) == legal


def test_transitions_by_hand() -> None:
    columns = make_columns(("f.tf.g..",))
    # 0-1, 1-2 end with the episode; 2 is final; 3-4; 4 is followed by a gap; 5-6, 6-7; 7 has no successor
    assert {first for _, first, _ in drawn(columns, Span(0, 1, 0))} == {0, 1, 3, 5, 6}
    # two steps: 1 is cut short by the end; 3 by the gap, where nothing is known to have ended; 6 by the write head
    assert set(drawn(columns, Span(0, 2, 1))) == {(0, 0, 3), (0, 1, 3), (0, 5, 8)}


def test_all_legal_samples_have_the_same_chance() -> None:
    columns = make_columns()
    samples = drawn(columns, Span(0, 1, 0))
    counts = np.unique([env * 1000 + first for env, first, _ in samples], return_counts=True)[1]
    expected = len(samples) / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_rare_legal_samples_are_found() -> None:
    columns = make_columns(("g" * 4000 + "f.....t" + "g" * 4000,), chunk_steps=500)
    anchors = uniform(columns).draw(20, Span(0, 6, 0), make_generator(0)).anchors
    assert set(samples_of(columns, anchors, Span(0, 6, 0))) == {(0, 4000, 4007)}
    assert has_legal(columns, Span(0, 6, 0))
    assert not has_legal(columns, Span(0, 7, 0))


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("f", r"A sample needs 2 consecutive rows of one env, but the buffer holds 1 per env.*\n.*at least 2 rows"),
        *((stream, "rows per env, but no sample of .*\n.*longer episodes") for stream in ("fff", "xxxx", "tttt")),
    ],
)
def test_without_a_legal_sample_there_is_an_error(stream: str, message: str) -> None:
    columns, span = make_columns((stream,)), Span(0, 1, 0)
    assert not has_legal(columns, span)
    with pytest.raises(TrainingError, match=message):
        uniform(columns).draw(2, span, make_generator(0))


def test_an_empty_buffer_has_no_samples() -> None:
    columns = ObservedColumns(2, 3, 4)
    for span in (Span(0, 1, 0), Span(0, 0, is_within_episode=False)):
        assert not has_legal(columns, span)
        with pytest.raises(TrainingError):
            uniform(columns).draw(2, span, make_generator(0))


@pytest.mark.parametrize("span", [Span(0, 1, 0, history=3), Span(0, 2, is_within_episode=False, history=3)])
def test_rows_whose_frames_are_gone_are_left_out(span: Span) -> None:
    streams = ("......" + ".......", "......" + "f......", "......" + ".tf....")
    columns = make_columns(streams, chunk_steps=2, num_chunks=4)
    assert columns.oldest == 6
    firsts = {env: min(first for e, first, _ in drawn(columns, span) if e == env) for env in range(3)}
    # env 0: rows 6 to 8 are frames of row 9. Env 1: its episode starts at 6. Env 2: the one that starts at 8.
    assert firsts == {0: 9, 1: 6, 2: 8}


def test_nothing_was_lost_yet_when_the_buffer_is_new() -> None:
    columns = make_columns(("f...", "...."))
    legal = {(env, first) for env, first, _ in drawn(columns, Span(0, 1, 0, history=3))}
    assert legal == {(0, 0), (0, 1), (0, 2)}


def test_the_same_generator_gives_the_same_samples() -> None:
    columns, span = make_columns(), Span(0, 2, 1)
    assert drawn(columns, span, "one") == drawn(columns, span, "one")
    assert drawn(columns, span, "one") != drawn(columns, span, "other")
