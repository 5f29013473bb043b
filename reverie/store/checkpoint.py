"""Checkpoints: the whole state of a session on disk, so that a killed run continues bit for bit.

``checkpoints/<env steps>-<updates>/`` contains one JSON file per part, a safetensors file for parts with arrays, and
``checkpoint.json`` with a hash of each file and of itself, the counters and the sizes of the log files. A checkpoint is
written into a temporary folder, synced and renamed, so it is complete or absent. Saving does not change the session.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.contracts import Stateful
from reverie.core.errors import RunError
from reverie.core.types import State
from reverie.store.documents import LARGEST_STATE
from reverie.store.files import check_file, digest_bytes, digest_files, install_folder, write_bytes
from reverie.store.run_folder import read_json, write_json
from reverie.store.trees import SealedStore, read_tree, write_tree

FORMAT = 1
ADDED_LATER = ("monitor",)
"""Parts that older checkpoints do not have. They start with their initial state."""
SUMMARY = "checkpoint.json"
NAME = re.compile(r"(\d{12,})-(\d{12,})(?:-(\d+))?")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path
    summary: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read the summary of a checkpoint. RunError if it is damaged."""
        summary = read_json(path / SUMMARY, limit=LARGEST_STATE)
        if summary.get("format") != FORMAT:
            raise RunError(
                f"{path} has checkpoint format {summary.get('format')}; this version reads format {FORMAT}.",
                "Use the Reverie version in the run's manifest.json, which wrote it.",
            )
        if summary.get("digest") != _digest_summary(summary) or not _is_complete(summary):
            raise RunError(f"{path / SUMMARY} is damaged: its content does not match its hash.")
        return cls(path, summary)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.summary["counters"]
        return counters

    @property
    def place(self) -> tuple[int, int]:
        """Env steps and updates."""
        return self.counters["env_steps"], self.counters["updates"]

    def check(self) -> None:
        """Raise RunError if a file is missing or damaged."""
        for name, digest in self.summary["files"].items():
            if name != Path(name).name:
                raise RunError(f"{self.path / SUMMARY} names a file outside of its folder: '{name}'.")
            check_file(self.path / name, digest)
        for name in self.summary["sealed"]:
            self._store.check(name)

    def read(self, part: str) -> State:
        """The state of one part."""
        return read_tree(self.path / part, self._store)

    def load_into(self, parts: Mapping[str, Stateful]) -> dict[str, State]:
        """The states of all ``parts``, which must be those of the checkpoint, except ``ADDED_LATER``."""
        saved = set(self.summary["parts"])
        unmatched = sorted((set(parts) ^ saved) - (set(ADDED_LATER) - saved))
        if unmatched:
            raise RunError(
                f"{self.path} does not fit this run: only one of the two has the parts {', '.join(unmatched)}.",
                "Resume the run with the config that it was started with.",
            )
        return {name: self.read(name) for name in parts if name in saved}

    @property
    def _store(self) -> SealedStore:
        return SealedStore(self.path.parent / "sealed")


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, run: Path) -> None:
        self.path = run / "checkpoints"
        self.store = SealedStore(self.path / "sealed")

    def save(self, parts: Mapping[str, Stateful], about: dict[str, Any]) -> Checkpoint:
        """Write a new checkpoint. If that fails, earlier ones are unchanged."""
        self.path.mkdir(exist_ok=True)
        return self._save({name: part.state() for name, part in parts.items()}, about)

    def paths(self) -> list[Path]:
        """The folders of all checkpoints, damaged ones included, oldest first."""
        found = [path for path in self.path.glob("*") if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: position(path.name))

    def all(self) -> list[Checkpoint]:
        """All checkpoints with an intact summary, oldest first."""
        found = []
        for path in self.paths():
            with contextlib.suppress(RunError):
                found.append(Checkpoint.open(path))
        return found

    def find(self, name: str) -> Checkpoint:
        """A checkpoint by its name or its env steps. The newest, if several have the same env steps."""
        for path in reversed(self.paths()):
            if name in (path.name, _env_steps(path)):
                return Checkpoint.open(path)
        steps = ", ".join(dict.fromkeys(map(_env_steps, self.paths()))) or "none"
        raise RunError(f"There is no checkpoint '{name}'.", f"There are checkpoints at these env steps: {steps}.")

    def newest_sound(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest undamaged checkpoint, and the errors of the newer ones."""
        complaints: list[str] = []
        for path in reversed(self.paths()):
            try:
                checkpoint = Checkpoint.open(path)
                checkpoint.check()
                return checkpoint, complaints
            except RunError as error:
                complaints.append(error.message)
        return None, complaints

    def newer_than(self, checkpoint: Checkpoint) -> list[Path]:
        paths = self.paths()
        return paths[paths.index(checkpoint.path) + 1 :] if checkpoint.path in paths else []

    def drop_newer(self, checkpoint: Checkpoint) -> None:
        """Delete the newer checkpoints when the run continues from this one: a later resume must not use them."""
        for path in reversed(self.newer_than(checkpoint)):
            _delete_folder(path)

    def tidy(self, keep: set[str]) -> None:
        """Delete all checkpoints except these, and the sealed arrays that no remaining one uses."""
        for path in self.paths():
            if path.name not in keep:
                _delete_folder(path)
        for leftover in self.path.glob(".*.new"):
            shutil.rmtree(leftover, ignore_errors=True)
        self.store.delete_except({name for c in self.all() for name in c.summary["sealed"]})

    def _save(self, states: Mapping[str, State], about: dict[str, Any]) -> Checkpoint:
        path = self._free_path(states["counters"])
        temporary = self.path / f".{path.name}.new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        sealed = [name for part, state in states.items() for name in write_tree(temporary / part, state, self.store)]
        files = digest_files(temporary)
        summary = {
            "format": FORMAT, **about, "counters": states["counters"], "parts": list(states),
            "files": files, "sealed": sorted(set(sealed)),
        }  # fmt: skip
        summary["digest"] = _digest_summary(summary)
        write_bytes(temporary / SUMMARY, json.dumps(summary, indent=1).encode())
        install_folder(temporary, path)
        write_json(self.path / "latest.json", {"checkpoint": path.name})
        return Checkpoint(path, summary)

    def _free_path(self, counters: State) -> Path:
        """Two saves may have equal counts, before and after an evaluation: the later one gets a number."""
        stem = f"{counters['env_steps']:012d}-{counters['updates']:012d}"
        number = 0
        while (path := self.path / (f"{stem}-{number}" if number else stem)).exists():
            number += 1
        return path


def position(name: str) -> list[int]:
    """Env steps, updates and number of a checkpoint, a sort key in order of creation."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"'{name}' is not the name of a checkpoint")
    return [int(number or 0) for number in match.groups()]


def _delete_folder(path: Path) -> None:
    """Rename, then delete: a crash in between must not leave half a checkpoint under its name."""
    doomed = path.with_name(f".{path.name}.new")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _env_steps(path: Path) -> str:
    return str(int(path.name.partition("-")[0]))


def _is_complete(summary: dict[str, Any]) -> bool:
    """Whether a summary has all fields with the right types. The hash proves nothing: anyone can compute it."""
    numbers = [*_values(summary, "counters"), *_values(summary, "logs")]
    names = [*_values(summary, "files"), *_items(summary, "parts"), *_items(summary, "sealed")]
    is_plain = all(type(n) is int and n >= 0 for n in numbers) and all(isinstance(n, str) for n in names)
    is_plain = is_plain and isinstance(summary.get("versions", {}), dict)
    has_parts = is_plain and all(f"{part}.json" in summary["files"] for part in summary["parts"])
    return has_parts and {"env_steps", "updates", "cycles"} <= set(summary["counters"])


def _values(summary: dict[str, Any], key: str) -> list[Any]:
    value = summary.get(key)
    return list(value.values()) if isinstance(value, dict) else [None]


def _items(summary: dict[str, Any], key: str) -> list[Any]:
    value = summary.get(key)
    return value if isinstance(value, list) else [None]


def _digest_summary(summary: dict[str, Any]) -> str:
    content = {key: value for key, value in summary.items() if key != "digest"}
    return digest_bytes(json.dumps(content, sort_keys=True).encode())
