"""Episode steps of stored rows, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.data.columns import ObservedColumns
from reverie.data.derived_columns import EpisodeSteps
from tests.unit.data.streams import make_row

LARGEST = EpisodeSteps.LARGEST


def count_by_hand(stream: str, oldest: int) -> list[int]:
    steps, step = [], LARGEST
    for letter in stream[oldest:]:
        step = 0 if letter in "fg" else min(step + 1, LARGEST)
        steps.append(step)
    return steps


@pytest.mark.parametrize("asked_every", [1, 2, 5, 37, 1000])
def test_steps_count_from_the_first_row_of_the_episode(asked_every: int) -> None:
    rng = np.random.default_rng(0)
    streams = ["".join(rng.choice([*"f......."], 400)), "f" + "." * 399, "." * 390 + "f" + "." * 9]
    columns = ObservedColumns(len(streams), chunk_steps=10, num_chunks=20)
    for step, letters in enumerate(zip(*streams, strict=True), start=1):
        columns.append(make_row(letters))
        if step % asked_every and step < 400:
            continue
        oldest = columns.oldest
        found = columns.episode_steps.take(columns.slots(columns.ids)).reshape(-1, len(streams))
        for env, stream in enumerate(streams):
            expected = count_by_hand(stream[:step], oldest)
            known = slice(expected.index(0) if 0 in expected else len(expected), None)
            assert found[known, env].tolist() == expected[known]
            before = found[: known.start, env]
            assert (before >= np.minimum(np.arange(len(before)) + 1, LARGEST)).all(), "it seems to have begun here"
    columns.clear()
    columns.append(make_row("..f"))
    assert columns.episode_steps.take(columns.slots(columns.ids)).tolist() == [
        LARGEST,
        LARGEST,
        0,
    ]
