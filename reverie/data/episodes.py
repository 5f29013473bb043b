"""Whole episodes out of stored rows, and back into the lanes of a buffer.

An episode is a row with a time axis: arrays (T, ...) from its first row to its final one. What begins in mid-episode,
because its start was overwritten, is left out. What was never finished is kept and ends as ``truncated``: that is what
happened to the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from reverie.core.types import Array, Row, is_last


class EpisodeCutter:
    """Cuts the rows of several envs, as they come, into episodes."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._open: list[list[Row]] = [[] for _ in range(num_envs)]

    def cut(self, rows: Row) -> Iterator[Row]:
        """Episodes that end among the next rows, (T * N, ...), in which all envs of a moment lie together."""
        for env in range(self.num_envs):
            yield from self._cut_lane(env, {key: values[env :: self.num_envs] for key, values in rows.items()})

    def finish(self) -> Iterator[Row]:
        """What was still going on, each cut off where the rows end."""
        for env in range(self.num_envs):
            yield from self._close(env)

    def _cut_lane(self, env: int, lane: Row) -> Iterator[Row]:
        valid = lane.get("valid", np.ones(len(lane["reward"]), bool))
        # A new stretch begins at every first row, behind every final one, and where rows begin or cease to count.
        breaks = lane["is_first"].copy()
        breaks[1:] |= is_last(lane)[:-1] | (valid[1:] != valid[:-1])
        bounds = [0, *(np.flatnonzero(breaks[1:]) + 1).tolist(), len(valid)]
        for begin, end in pairwise(bounds):
            if begin == end:
                continue
            piece = {key: values[begin:end] for key, values in lane.items() if key != "valid"}
            if piece["is_first"][0] or not valid[begin]:
                yield from self._close(env)
            if valid[begin] and (piece["is_first"][0] or self._open[env]):
                self._open[env].append({key: values.copy() for key, values in piece.items()})
            if is_last(piece)[-1]:
                yield from self._close(env)

    def _close(self, env: int) -> Iterator[Row]:
        pieces, self._open[env] = self._open[env], []
        if not pieces:
            return
        episode = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
        if not is_last(episode)[-1]:
            episode["truncated"][-1] = True
        if len(episode["reward"]) > 1:  # a lone first row shows no step
            yield episode


def lay_in_lanes(episodes: Iterable[Row], num_lanes: int) -> Iterator[Row]:
    """Rows of ``num_lanes`` envs, one moment at a time, in which the episodes follow each other.

    A lane takes the next episode when its last one is over; at the end, lanes that are done wait with rows that are
    not ``valid``.
    """
    waiting = iter(episodes)
    lanes: list[tuple[Row, int]] = []
    for _ in range(num_lanes):
        episode = next(waiting, None)
        if episode is not None:
            lanes.append((episode, 0))
    if not lanes:
        return
    blank = {key: np.zeros_like(values[0]) for key, values in lanes[0][0].items()} | {"is_first": np.array(True)}
    done = ({key: value[None] for key, value in blank.items()}, -1)
    lanes += [done] * (num_lanes - len(lanes))
    while any(place >= 0 for _, place in lanes):
        row = {key: np.stack([episode[key][place] for episode, place in lanes]) for key in blank}
        yield {**row, "valid": np.array([place >= 0 for _, place in lanes])}
        for lane, (episode, place) in enumerate(lanes):
            if place < 0:
                continue
            if place + 1 < len(episode["reward"]):
                lanes[lane] = (episode, place + 1)
            else:
                following = next(waiting, None)
                lanes[lane] = done if following is None else (following, 0)


def total_return(episode: Row) -> float:
    return float(np.sum(episode["reward"], dtype=np.float64))


def concatenate(episodes: list[Row]) -> dict[str, Array]:
    """Episodes behind each other."""
    return {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
