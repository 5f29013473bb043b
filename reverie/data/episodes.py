"""Splits stored rows into episodes, and turns episodes back into rows of a vector env.

An episode is a dict of arrays (T, ...), from its first row to its final one. Rows whose episode has lost its first row
are left out. An episode that was never finished is kept and its last row is marked ``truncated``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from reverie.core.types import Array, Row, is_last


class EpisodeSplitter:
    """Splits the rows of ``num_envs`` envs into episodes, a block of rows at a time."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._open: list[list[Row]] = [[] for _ in range(num_envs)]

    def split(self, rows: Row) -> Iterator[Row]:
        """Episodes that end within the next rows (T * N, ...), ordered by time, then by env."""
        for env in range(self.num_envs):
            yield from self._split_env(env, {key: values[env :: self.num_envs] for key, values in rows.items()})

    def finish(self) -> Iterator[Row]:
        """The unfinished episodes, truncated at their last row."""
        for env in range(self.num_envs):
            yield from self._close(env)

    def _split_env(self, env: int, rows: Row) -> Iterator[Row]:
        valid = rows.get("valid", np.ones(len(rows["reward"]), bool))
        # A new piece begins at every first row, after every final row, and where ``valid`` changes.
        breaks = rows["is_first"].copy()
        breaks[1:] |= is_last(rows)[:-1] | (valid[1:] != valid[:-1])
        bounds = [0, *(np.flatnonzero(breaks[1:]) + 1).tolist(), len(valid)]
        for begin, end in pairwise(bounds):
            if begin == end:
                continue
            piece = {key: values[begin:end] for key, values in rows.items() if key != "valid"}
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
        if len(episode["reward"]) > 1:  # a single first row contains no env step
            yield episode


def episodes_to_rows(episodes: Iterable[Row], num_envs: int) -> Iterator[Row]:
    """Rows (N, ...) with ``valid``, as ``num_envs`` envs would produce them by playing these episodes.

    An env starts the next episode when its last one ends. When no episodes are left, its rows are not ``valid``.
    """
    remaining = iter(episodes)
    playing: list[tuple[Row, int]] = []  # the episode of each env and its current step, -1 if the env is done
    for _ in range(num_envs):
        episode = next(remaining, None)
        if episode is not None:
            playing.append((episode, 0))
    if not playing:
        return
    blank = {key: np.zeros_like(values[0]) for key, values in playing[0][0].items()} | {"is_first": np.array(True)}
    done = ({key: value[None] for key, value in blank.items()}, -1)
    playing += [done] * (num_envs - len(playing))
    while any(step >= 0 for _, step in playing):
        row = {key: np.stack([episode[key][step] for episode, step in playing]) for key in blank}
        yield {**row, "valid": np.array([step >= 0 for _, step in playing])}
        for env, (episode, step) in enumerate(playing):
            if step < 0:
                continue
            if step + 1 < len(episode["reward"]):
                playing[env] = (episode, step + 1)
            else:
                upcoming = next(remaining, None)
                playing[env] = done if upcoming is None else (upcoming, 0)


def total_return(episode: Row) -> float:
    return float(np.sum(episode["reward"], dtype=np.float64))


def concatenate(episodes: list[Row]) -> dict[str, Array]:
    """One array (T, ...) per key, with the episodes one after another."""
    return {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
