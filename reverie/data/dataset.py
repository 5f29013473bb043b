"""A dataset on disk: episodes as rows, in chunks, with a description. No pickle; every chunk has a hash in its name.

``dataset.json`` tells the sizes, where the rows come from and which chunk files belong to it, in order. Episodes lie
behind each other and may reach over the end of a chunk. Of stacked frames only the newest is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reverie.core.errors import RunError
from reverie.core.specs import Specs
from reverie.core.types import Row, Sealed
from reverie.data.episodes import EpisodeCutter, concatenate, total_return
from reverie.data.rows import newest_frame, stack_frames
from reverie.store import documents
from reverie.store.trees import SealedStore, write_bytes

FORMAT = 1
DESCRIPTION = "dataset.json"
CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Dataset:
    """What a dataset says about itself."""

    folder: Path
    specs: Specs
    env: dict[str, Any]
    """The config of the env, so that its spaces can be had again."""
    origin: str
    """The run or policy that the rows come from, for people."""
    chunks: list[str]
    summary: dict[str, float]
    """Rows, episodes, returns and lengths."""
    stacked: dict[str, int] = field(default_factory=dict)
    """Observations that are stored as single frames, and how many make a stack."""

    @property
    def num_episodes(self) -> int:
        return int(self.summary["episodes"])

    def check(self, chunk: str) -> None:
        """Read a file; RunError if it is missing or not what was written."""
        SealedStore(self.folder).check(chunk)

    def episodes(self) -> Iterator[Row]:
        """All episodes in order, with whole stacks."""
        store, cutter = SealedStore(self.folder), EpisodeCutter(1)
        for name in self.chunks:
            for episode in cutter.cut(store.get(name).arrays):
                yield self._stack(episode)
        yield from map(self._stack, cutter.finish())

    def _stack(self, episode: Row) -> Row:
        first = episode["is_first"][None]
        stacks = {key: stack_frames(episode[key][None], first, count)[0] for key, count in self.stacked.items()}
        return episode | stacks


def write_dataset(
    folder: Path, episodes: Iterable[Row], specs: Specs, env: dict[str, Any], origin: str, stacked: dict[str, int]
) -> Dataset:
    """Write episodes into a new folder; ``stacked`` names observations that are stacks, and of how many frames."""
    if (folder / DESCRIPTION).exists():
        raise RunError(f"There is a dataset in '{folder}' already.", "Choose another folder, or delete that one.")
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(folder, stacked)
    for episode in episodes:
        writer.add(episode)
    writer.flush()
    if not writer.chunks:
        raise RunError("There is no episode to write.", "Let the run collect at least one whole episode first.")
    dataset = Dataset(folder, specs, env, origin, writer.chunks, writer.tally.summary(), stacked)
    description = {
        "format": FORMAT, "specs": specs.to_json(), "env": env, "origin": origin, "chunks": writer.chunks,
        "summary": dataset.summary, "stacked": stacked,
    }  # fmt: skip
    write_bytes(folder / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())
    return dataset


def read_dataset(folder: Path) -> Dataset:
    """The dataset in a folder; its rows are read when they are asked for."""
    try:
        told = documents.read_json(folder / DESCRIPTION, documents.LARGEST_STATE)
        if told["format"] != FORMAT:
            raise RunError(f"'{folder}' is a dataset of format {told['format']}, this is {FORMAT}.", "Export it again.")
        stacked = {str(key): int(count) for key, count in told["stacked"].items()}
        chunks = [str(name) for name in told["chunks"]]
        specs = Specs.from_json(told["specs"])
        return Dataset(folder, specs, dict(told["env"]), str(told["origin"]), chunks, dict(told["summary"]), stacked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(
            f"'{folder}' is not a dataset that can be read: {error}.", "Name the --out of an export."
        ) from error


class Tally:
    """Sums up episodes."""

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.terminated = 0

    def count(self, episode: Row) -> None:
        self.returns.append(total_return(episode))
        self.lengths.append(len(episode["reward"]) - 1)
        self.terminated += int(episode["terminated"][-1])

    def summary(self) -> dict[str, float]:
        returns, lengths = np.array(self.returns), np.array(self.lengths)
        return {
            "episodes": len(returns), "rows": int(lengths.sum()) + len(lengths), "terminated": self.terminated,
            "return_mean": float(returns.mean()), "return_min": float(returns.min()),
            "return_max": float(returns.max()), "length_mean": float(lengths.mean()),
        }  # fmt: skip


class _Writer:
    """Gathers episodes until they fill a chunk."""

    def __init__(self, folder: Path, stacked: dict[str, int]) -> None:
        self.store = SealedStore(folder)
        self.stacked = stacked
        self.chunks: list[str] = []
        self.tally = Tally()
        self._waiting: list[Row] = []
        self._rows = 0

    def add(self, episode: Row) -> None:
        frames = {key: newest_frame(episode[key], episode[key].shape[-1] // n) for key, n in self.stacked.items()}
        self._waiting.append(episode | frames)
        self._rows += len(episode["reward"])
        self.tally.count(episode)
        if self._rows >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            name = f"rows-{len(self.chunks):08d}"
            self.chunks.append(self.store.put(Sealed(name, concatenate(self._waiting))))
        self._waiting, self._rows = [], 0
