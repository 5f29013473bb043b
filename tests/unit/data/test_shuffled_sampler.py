"""Passes over all samples: each once, in random order, however the draws are cut; exact through a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reverie.core.config import ComponentConfig
from reverie.core.errors import TrainingError
from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.data.sample_spans import Span, find_legal
from reverie.data.shuffled_sampler import ShuffledSampler
from tests.unit.data.streams import SPANS, STREAMS, legal_samples, make_columns, make_row, samples_of
from tests.unit.data.test_replay import assert_same, make_buffer, sample, through_files
from tests.unit.data.test_replay import make_row as make_buffer_row

STEP = Span(0, 1, 0)
CONFIG = ShuffledSampler.Config()


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("batch_size", [1, 4, 7])
def test_a_pass_has_every_legal_sample_once(span: Span, batch_size: int) -> None:
    columns = make_columns(num_chunks=8)
    legal = columns.ids[find_legal(columns, columns.ids, span)]
    sampler, rng = ShuffledSampler(CONFIG, columns), make_generator(0)
    draws = [sampler.draw(batch_size, span, rng).anchors for _ in range(3 * len(legal))]
    order = np.concatenate(draws)
    for number in range(3):
        one = order[number * len(legal) : (number + 1) * len(legal)]
        assert sorted(one.tolist()) == legal.tolist()
    assert set(samples_of(columns, order, span)) == legal_samples(STREAMS, columns.oldest, span)


def test_passes_have_different_orders() -> None:
    columns = make_columns()
    sampler, rng = ShuffledSampler(CONFIG, columns), make_generator(0)
    count = int(find_legal(columns, columns.ids, STEP).sum())
    first, second = (sampler.draw(count, STEP, rng).anchors.tolist() for _ in range(2))
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != sorted(first)


def test_reads_have_passes_of_their_own() -> None:
    columns = make_columns()
    sampler, rng = ShuffledSampler(CONFIG, columns), make_generator(0)
    count = int(find_legal(columns, columns.ids, STEP).sum())
    first = sampler.draw(count // 2, STEP, rng).anchors
    sampler.draw(3, SPANS["4 steps"], rng)
    rest = sampler.draw(count - len(first), STEP, rng).anchors
    assert len({*first.tolist(), *rest.tolist()}) == count


def test_dropped_rows_are_skipped_and_new_ones_wait() -> None:
    columns = make_columns(("f" + "." * 29,), chunk_steps=5, num_chunks=6)
    sampler, rng = ShuffledSampler(CONFIG, columns), make_generator(0)
    first = set(sampler.draw(10, STEP, rng).anchors.tolist())
    for _ in range(5):
        columns.append(make_row("."))
    assert columns.oldest == 5
    rest = [anchor for anchor in range(5, 29) if anchor not in first]
    assert sorted(sampler.draw(len(rest), STEP, rng).anchors.tolist()) == rest
    assert sorted(sampler.draw(29, STEP, rng).anchors.tolist()) == list(range(5, 34))


def test_an_empty_buffer_is_explained() -> None:
    with pytest.raises(TrainingError, match="A sample needs 2 consecutive rows"):
        ShuffledSampler(CONFIG, make_columns(("f",))).draw(1, STEP, make_generator(0))


@pytest.mark.parametrize("read", [Transitions(16), Transitions(16, 3), Window(8, 6)])
def test_the_number_of_samples_of_a_pass(read: Transitions | Window) -> None:
    buffer = make_buffer(100, sampler={"kind": "shuffled"})
    count = buffer.num_samples(read)
    assert 0 < count <= len(buffer)
    anchors = []
    for _ in range(-(-count // read.batch_size)):
        anchors += sample(buffer, read, len(anchors))["id"][:, 0].tolist()
    assert len(set(anchors[:count])) == count


@pytest.mark.parametrize("through", ["memory", "files"])
def test_a_restored_buffer_goes_on_with_its_pass(through: str, tmp_path: Path) -> None:
    settings: dict[str, ComponentConfig] = {"sampler": CONFIG}
    buffer, copy = make_buffer(30, **settings), make_buffer(3, **settings)
    sample(buffer, Transitions(7))
    sample(buffer, Window(5, 3))
    state = buffer.state()
    copy.load_state(through_files(state, tmp_path) if through == "files" else state)
    for time in range(30, 70):
        for read in (Transitions(7), Window(5, 3)):
            assert_same(sample(copy, read, time), sample(buffer, read, time))
        for one in (buffer, copy):
            one.add(make_buffer_row(time))


def test_clearing_forgets_the_pass() -> None:
    buffer = make_buffer(30, sampler={"kind": "shuffled"})
    sample(buffer, Transitions(4))
    buffer.clear()
    for time in range(10):
        buffer.add(make_buffer_row(time))
    assert sample(buffer, Transitions(4))["id"].min() >= buffer.rows.oldest * 2
