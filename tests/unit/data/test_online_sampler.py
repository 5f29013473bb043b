"""The online sampler serves what is new, once, in order; then it draws as the uniform one does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reverie.core.errors import TrainingError
from reverie.core.reads import Window
from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.data.columns import ObservedColumns
from reverie.data.online_sampler import OnlineSampler
from reverie.data.sample_spans import Span
from tests.unit.data.streams import SPANS, STREAMS, legal_samples, make_columns, make_row, samples_of
from tests.unit.data.test_replay import assert_same, make_buffer, sample, through_files
from tests.unit.data.test_replay import make_row as make_buffer_row

WINDOW = Span(0, 3, is_within_episode=False)


def make_sampler(columns: ObservedColumns) -> OnlineSampler:
    return OnlineSampler(OnlineSampler.Config(), columns)


def draw(sampler: OnlineSampler, count: int, span: Span = WINDOW) -> list[int]:
    return sampler.draw(count, span, make_generator(0)).anchors.tolist()


def append(columns: ObservedColumns, steps: int, letters: str) -> None:
    for _ in range(steps):
        columns.append(make_row(letters))


def test_windows_lie_side_by_side_and_the_envs_take_turns() -> None:
    columns = make_columns(("f" + "." * 13, "f" + "." * 13))
    sampler = make_sampler(columns)
    # Windows of four rows start at steps 0, 4 and 8 of each env; ids are 2 * step + env.
    assert draw(sampler, 1) == [0]
    assert draw(sampler, 2) == [1, 8]
    assert draw(sampler, 3) == [9, 16, 17]
    append(columns, 2, "..")
    assert sampler.state()["cursors"].tolist() == [12, 12]
    assert draw(sampler, 2) == [24, 25]


def test_rows_serve_as_context_again() -> None:
    columns = make_columns(("f" + "." * 13,))
    # Four rows of which the first is context: rows 1 to 3, 4 to 6 and so on are replayed once each.
    assert draw(make_sampler(columns), 4, Span(0, 3, is_within_episode=False, context=1)) == [0, 3, 6, 9]


def test_when_nothing_is_new_everything_is_served_alike() -> None:
    columns = make_columns(("f" + "." * 9,))
    sampler = make_sampler(columns)
    anchors = draw(sampler, 1000)
    assert anchors[:2] == [0, 4]
    assert set(anchors[2:]) == set(range(7))


def test_every_row_is_served_while_there_is_time_for_it() -> None:
    columns, served = make_columns(("", ""), num_chunks=4), set()
    sampler = make_sampler(columns)
    for letters in zip(*STREAMS, strict=True):
        columns.append(make_row(letters))
        if columns.end > 5:
            for anchor in sampler.draw(2, WINDOW, make_generator(columns.end)).anchors:
                served |= {int(anchor) + 2 * offset for offset in range(4)}
    cursors = sampler.state()["cursors"]
    assert (cursors > len(STREAMS[0]) - 4).all()  # what lies behind them is no whole window yet
    wanted = {2 * step + env for env in range(2) for step in range(cursors[env]) if STREAMS[env][step] != "x"}
    assert wanted <= served
    assert columns.oldest > 0


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_within_episodes_each_legal_sample_comes_once(span: Span) -> None:
    streams = tuple(stream + "f" + "." * 12 for stream in STREAMS)
    columns = make_columns(streams)
    sampler, found = make_sampler(columns), []
    while (sampler.state()["cursors"] < len(STREAMS[0])).any():
        found += draw(sampler, 1, span)
    samples = {sample for sample in samples_of(columns, np.array(found), span) if sample[1] < len(STREAMS[0])}
    assert samples == {sample for sample in legal_samples(streams, 0, span) if sample[1] < len(STREAMS[0])}
    assert len(found) == len(set(found))


def test_rows_that_do_not_count_are_stepped_over() -> None:
    columns = make_columns(("xxx" + "f" + "." * 8,))
    assert draw(make_sampler(columns), 2) == [3, 7]


def test_rows_dropped_before_their_turn_are_lost() -> None:
    columns = make_columns(("f...",), chunk_steps=3, num_chunks=4)
    sampler = make_sampler(columns)
    assert draw(sampler, 1) == [0]
    append(columns, 37, ".")
    assert columns.oldest == 30
    assert draw(sampler, 2) == [30, 34]


def test_nothing_to_serve_is_an_error() -> None:
    with pytest.raises(TrainingError, match=r"A sample needs|but no sample of"):
        draw(make_sampler(make_columns(("f..",))), 1)


def first_ids(batch: dict[str, Array]) -> list[int]:
    return batch["id"][:, 0].tolist()


def test_a_restored_buffer_serves_what_was_not_served(tmp_path: Path) -> None:
    settings = {"sampler": "online"}
    buffer, copy = make_buffer(20, **settings), make_buffer(3, **settings)
    assert first_ids(sample(buffer, Window(3, 4))) == [0, 1, 8]
    copy.load_state(through_files(buffer.state(), tmp_path))
    assert first_ids(sample(copy, Window(3, 4))) == first_ids(sample(buffer, Window(3, 4))) == [9, 16, 17]
    for time in range(20, 60):
        for one in (buffer, copy):
            one.add(make_buffer_row(time))
        assert_same(sample(copy, Window(2, 4), time), sample(buffer, Window(2, 4), time))


def test_clearing_starts_anew() -> None:
    buffer = make_buffer(20, sampler="online")
    sample(buffer, Window(3, 4))
    buffer.clear()
    for time in range(8):
        buffer.add(make_buffer_row(time))
    assert first_ids(sample(buffer, Window(4, 4))) == [40, 41, 48, 49]
