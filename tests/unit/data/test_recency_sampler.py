"""Recency sampling against the exact chances of all legal rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.data import sampler
from reverie.data.columns import ObservedColumns
from reverie.data.sample_spans import Span, find_legal
from reverie.data.sampler import RecencySampler
from tests.unit.data.streams import SPANS, STREAMS, assert_chances, legal_samples, make_columns, samples_of
from tests.unit.data.test_replay import assert_same, make_buffer, sample, through_files
from tests.unit.data.test_replay import make_row as make_buffer_row


def draw_many(columns: ObservedColumns, span: Span, half_life: int, count: int = 20_000) -> Array:
    recency = RecencySampler(RecencySampler.Config(half_life=half_life), columns)
    return recency.draw(count, span, make_generator("recency")).anchors


@pytest.mark.parametrize("rounds", [0, 8], ids=["looked up", "drawn"])
@pytest.mark.parametrize("half_life", [10, 10**9])
@pytest.mark.parametrize("num_chunks", [20, 8], ids=["all", "wrapped"])
def test_a_chance_halves_with_every_half_life(
    num_chunks: int, half_life: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_ROUNDS", rounds)
    columns, span = make_columns(num_chunks=num_chunks), Span(0, 1, 0)
    legal = columns.ids[find_legal(columns, columns.ids, span)]
    # Rows of one moment have one age, whichever env they come from.
    chances = {int(anchor): 0.5 ** ((columns.newest - anchor // 2) * 2 / half_life) for anchor in legal}
    assert_chances(draw_many(columns, span, half_life, 60_000), chances)


def test_half_of_all_draws_are_younger_than_the_half_life() -> None:
    columns = make_columns(("f" + "." * 3000,), chunk_steps=1000)
    ages = columns.newest - 1 - draw_many(columns, Span(0, 1, 0), half_life=100)
    assert (ages < 100).mean() == pytest.approx(0.5, abs=0.02)
    assert (ages < 200).mean() == pytest.approx(0.75, abs=0.02)
    assert ages.min() == 0


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_exactly_the_legal_samples_appear(span: Span) -> None:
    columns = make_columns(num_chunks=8)
    found = set(samples_of(columns, draw_many(columns, span, half_life=40), span))
    assert found == legal_samples(STREAMS, columns.oldest, span)


def test_old_rows_are_drawn_where_only_they_are_legal() -> None:
    columns = make_columns(("f..t" + "x" * 3000,), chunk_steps=1000)
    assert_chances(draw_many(columns, Span(0, 1, 0), half_life=1), {0: 1, 1: 2, 2: 4})


def test_a_restored_buffer_draws_the_same(tmp_path: Path) -> None:
    settings = {"sampler": {"kind": "recency", "half_life": 16}}
    buffer, copy = make_buffer(50, **settings), make_buffer(3, **settings)
    copy.load_state(through_files(buffer.state(), tmp_path))
    for time in range(50, 70):
        for read in (Transitions(16, 2), Window(8, 3)):
            batch = sample(buffer, read, time)
            assert_same(sample(copy, read, time), batch)
            assert "importance" not in batch
        for one in (buffer, copy):
            one.add(make_buffer_row(time))
    assert np.mean(batch["id"]) > np.mean(sample(make_buffer(70), Window(8, 3))["id"])
