"""Rows cut into episodes and laid into lanes, on hand-made streams."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.types import Row, is_last
from reverie.data.episodes import EpisodeSplitter, episodes_to_rows, total_return
from tests.unit.data.streams import STREAMS, make_row


def rows_of(streams: tuple[str, ...]) -> Row:
    """(T * N, ...) rows whose reward is 100 * env + time."""
    moments = [make_row(letters) for letters in zip(*streams, strict=True)]
    rows = {key: np.concatenate([row[key] for row in moments]) for key in moments[0]}
    count = len(streams)
    rows["reward"] = np.array([100 * env + time for time in range(len(moments)) for env in range(count)], np.float32)
    return rows


def cut(streams: tuple[str, ...], piece: int) -> list[Row]:
    rows, splitter = rows_of(streams), EpisodeSplitter(len(streams))
    size = piece * len(streams)
    found = []
    for begin in range(0, len(rows["reward"]), size):
        found += splitter.split({key: values[begin : begin + size] for key, values in rows.items()})
    return [*found, *splitter.finish()]


def test_episodes_by_hand() -> None:
    #          no start  whole  lone  a gap ends it  not valid  unfinished
    stream = "..t" "f..c" "f" "f..g.t" "xx" "f.."  # fmt: skip
    found = cut((stream,), piece=len(stream))
    assert [episode["reward"].astype(int).tolist() for episode in found] == [
        [3, 4, 5, 6], [8, 9, 10], [11, 12, 13], [16, 17, 18]
    ]  # fmt: skip
    assert [(bool(e["terminated"][-1]), bool(e["truncated"][-1])) for e in found] == [
        (False, True), (False, True), (True, False), (False, True)
    ]  # fmt: skip
    assert "valid" not in found[0]


@pytest.mark.parametrize("piece", [1, 4, 30])
def test_pieces_do_not_matter(piece: int) -> None:
    def contents(episodes: list[Row]) -> list[list[float]]:
        return sorted(episode["reward"].tolist() for episode in episodes)

    found = cut(STREAMS, piece)
    assert contents(found) == contents(cut(STREAMS, 30))
    assert len(found) > 5
    for episode in found:
        assert episode["is_first"].tolist() == [True] + [False] * (len(episode["reward"]) - 1)
        assert is_last(episode).tolist() == [False] * (len(episode["reward"]) - 1) + [True]


@pytest.mark.parametrize("lanes", [1, 2, 3, 40])
def test_lanes_hold_every_row_once(lanes: int) -> None:
    episodes = cut(STREAMS, 30)
    rows = list(episodes_to_rows(iter(episodes), lanes))
    assert all(len(row["valid"]) == lanes for row in rows)
    served = np.concatenate([row["reward"][row["valid"]] for row in rows])
    assert sorted(served) == sorted(np.concatenate([episode["reward"] for episode in episodes]))
    flat = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
    splitter = EpisodeSplitter(lanes)
    again = [*splitter.split(flat), *splitter.finish()]
    assert sorted(map(total_return, again)) == sorted(map(total_return, episodes))


def test_no_episodes_are_no_rows() -> None:
    assert list(episodes_to_rows([], 3)) == []
