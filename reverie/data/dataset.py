"""A dataset on disk: episodes as rows, in chunk files whose names contain a hash of their content. No pickle.

``dataset.json`` holds the specs, the origin of the rows, a summary and the names of the chunk files in order. Episodes
are stored one after another and may continue in the next chunk. Of a stack of frames only the newest is stored.
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
from reverie.data.episodes import EpisodeSplitter, concatenate, total_return
from reverie.data.rows import newest_frame, stack_frames
from reverie.store import documents
from reverie.store.files import write_bytes
from reverie.store.trees import SealedStore

FORMAT = 1
DESCRIPTION = "dataset.json"
CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Dataset:
    """The description of a dataset. Its rows are read on demand."""

    folder: Path
    specs: Specs
    env: dict[str, Any]
    """The env config, from which the env can be made again."""
    origin: str
    """The run or policy that collected the rows, for display."""
    chunks: list[str]
    summary: dict[str, float]
    """Rows, episodes, returns and lengths."""
    stacked: dict[str, int] = field(default_factory=dict)
    """Stack size of each observation that is stored as single frames."""

    @property
    def num_episodes(self) -> int:
        return int(self.summary["episodes"])

    def check(self, chunk: str) -> None:
        """Raise RunError if a chunk file is missing or was changed."""
        SealedStore(self.folder).check(chunk)

    def episodes(self) -> Iterator[Row]:
        """All episodes in order, with complete stacks of frames."""
        store, splitter = SealedStore(self.folder), EpisodeSplitter(1)
        for name in self.chunks:
            for episode in splitter.split(store.get(name).arrays):
                yield self._stack(episode)
        yield from map(self._stack, splitter.finish())

    def _stack(self, episode: Row) -> Row:
        first = episode["is_first"][None]
        stacks = {key: stack_frames(episode[key][None], first, count)[0] for key, count in self.stacked.items()}
        return episode | stacks


def write_dataset(
    folder: Path, episodes: Iterable[Row], specs: Specs, env: dict[str, Any], origin: str, stacked: dict[str, int]
) -> Dataset:
    """Write episodes into a new folder. ``stacked`` maps observations that are stacks to their number of frames."""
    if (folder / DESCRIPTION).exists():
        raise RunError(f"'{folder}' already contains a dataset.", "Choose another folder, or delete that one.")
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(folder, stacked)
    for episode in episodes:
        writer.add(episode)
    writer.flush()
    if not writer.chunks:
        raise RunError("There are no complete episodes to write.", "Collect at least one complete episode first.")
    dataset = Dataset(folder, specs, env, origin, writer.chunks, writer.tally.summary(), stacked)
    description = {
        "format": FORMAT, "specs": specs.to_json(), "env": env, "origin": origin, "chunks": writer.chunks,
        "summary": dataset.summary, "stacked": stacked,
    }  # fmt: skip
    write_bytes(folder / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())
    return dataset


def read_dataset(folder: Path) -> Dataset:
    try:
        saved = documents.read_json(folder / DESCRIPTION, documents.LARGEST_STATE)
        if saved["format"] != FORMAT:
            raise RunError(
                f"The dataset in '{folder}' has format {saved['format']}; this version reads format {FORMAT}.",
                "Export it again with this version: reverie data export.",
            )
        stacked = {str(key): int(count) for key, count in saved["stacked"].items()}
        chunks = [str(name) for name in saved["chunks"]]
        specs = Specs.from_json(saved["specs"])
        return Dataset(folder, specs, dict(saved["env"]), str(saved["origin"]), chunks, dict(saved["summary"]), stacked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(
            f"The dataset in '{folder}' cannot be read: {error}.",
            "Name a folder that was the --out of reverie data export.",
        ) from error


class Tally:
    """Statistics of episodes as they are written."""

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
    """Collects episodes and writes them in chunks."""

    def __init__(self, folder: Path, stacked: dict[str, int]) -> None:
        self.store = SealedStore(folder)
        self.stacked = stacked
        self.chunks: list[str] = []
        self.tally = Tally()
        self._pending: list[Row] = []
        self._num_rows = 0

    def add(self, episode: Row) -> None:
        frames = {key: newest_frame(episode[key], episode[key].shape[-1] // n) for key, n in self.stacked.items()}
        self._pending.append(episode | frames)
        self._num_rows += len(episode["reward"])
        self.tally.count(episode)
        if self._num_rows >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            name = f"rows-{len(self.chunks):08d}"
            self.chunks.append(self.store.put(Sealed(name, concatenate(self._pending))))
        self._pending, self._num_rows = [], 0
