"""Checkpoints: everything a session remembers, on disk, so that a killed run goes on bit for bit.

``checkpoints/<env steps>-<updates>/`` holds one JSON file per part, a safetensors file where the part has arrays,
and ``checkpoint.json`` with a hash of each file, the counters and the sizes of the log files. A checkpoint is written
into a temporary folder, synced, and renamed: it is whole or not there. Saving changes nothing in the session.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.contracts import Stateful
from reverie.core.errors import RunError
from reverie.core.types import State
from reverie.runs.folder import read_json, write_json
from reverie.runs.storage import SealedStore, read_tree, sync_folder, write_bytes, write_tree

FORMAT = 1
SUMMARY = "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path
    summary: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.summary["counters"]
        return counters

    def check(self) -> None:
        """Every file is there with the content that was saved; otherwise RunError says which is not."""
        if self.summary.get("format") != FORMAT:
            raise RunError(
                f"{self.path} has the checkpoint format {self.summary.get('format')}, this is {FORMAT}.",
                "Use the Reverie version that wrote it; the run's manifest.json names it.",
            )
        for name, digest in self.summary["files"].items():
            if name != Path(name).name:
                raise RunError(f"{self.path / SUMMARY} names a file outside of its folder: '{name}'.")
            path = self.path / name
            if not path.is_file():
                raise RunError(f"{path} is missing.")
            if _digest(path.read_bytes()) != digest:
                raise RunError(f"{path} is damaged: its hash is not the saved one.")

    def read(self, part: str) -> State:
        """The state of one part."""
        return read_tree(self.path / part, SealedStore(self.path.parent / "sealed"))

    def load_into(self, parts: Mapping[str, Stateful]) -> dict[str, State]:
        """The states of all ``parts``; they must be the ones that were saved."""
        missing = sorted(set(parts) ^ set(self.summary["parts"]))
        if missing:
            raise RunError(
                f"{self.path} does not fit this run: {', '.join(missing)} is only in one of them.",
                "Resume it with the config it was made with.",
            )
        return {name: self.read(name) for name in parts}


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, run: Path) -> None:
        self.path = run / "checkpoints"
        self.store = SealedStore(self.path / "sealed")

    def save(self, parts: Mapping[str, Stateful], about: dict[str, Any]) -> Checkpoint:
        """Write a new checkpoint; on failure the ones before stay as they are."""
        try:
            self.path.mkdir(exist_ok=True)
            return self._save({name: part.state() for name, part in parts.items()}, about)
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            raise RunError(
                f"The checkpoint could not be written to {self.path}: {reason}.",
                "Make room or mend the permissions, then: reverie resume " + self.path.parent.name,
            ) from error

    def all(self) -> list[Checkpoint]:
        """Every checkpoint whose summary can be read, oldest first."""
        found = []
        for path in sorted(self.path.glob(f"*/{SUMMARY}")):
            try:
                summary = read_json(path)
                found.append(Checkpoint(path.parent, {**summary, "counters": dict(summary["counters"])}))
            except (RunError, KeyError, TypeError, ValueError):
                continue
        return sorted(found, key=lambda checkpoint: checkpoint.name)

    def find(self, name: str) -> Checkpoint:
        """A checkpoint by its name or its env steps."""
        known = self.all()
        for checkpoint in known:
            if name == checkpoint.name or name == str(checkpoint.counters.get("env_steps")):
                return checkpoint
        steps = ", ".join(str(c.counters.get("env_steps")) for c in known) or "none"
        raise RunError(f"There is no checkpoint '{name}'.", f"Checkpoints lie at these env steps: {steps}.")

    def newest_sound(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and what is wrong with the newer ones."""
        complaints: list[str] = []
        for checkpoint in reversed(self.all()):
            try:
                checkpoint.check()
                return checkpoint, complaints
            except RunError as error:
                complaints.append(error.message)
        return None, complaints

    def tidy(self, keep: set[str]) -> None:
        """Delete all checkpoints but those named, and the sealed arrays that none of them uses."""
        for checkpoint in self.all():
            if checkpoint.name not in keep:
                _delete_folder(checkpoint.path)
        for leftover in self.path.glob(".*.new"):
            shutil.rmtree(leftover, ignore_errors=True)
        self.store.delete_except({name for c in self.all() for name in c.summary.get("sealed", [])})

    def _save(self, states: Mapping[str, State], about: dict[str, Any]) -> Checkpoint:
        path = self._free_path(states["counters"])
        temporary = self.path / f".{path.name}.new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        sealed = [name for part, state in states.items() for name in write_tree(temporary / part, state, self.store)]
        files = {file.name: _digest(file.read_bytes()) for file in sorted(temporary.iterdir())}
        summary = {
            "format": FORMAT, **about, "counters": states["counters"], "parts": list(states),
            "files": files, "sealed": sorted(set(sealed)),
        }  # fmt: skip
        write_bytes(temporary / SUMMARY, json.dumps(summary, indent=1).encode())
        sync_folder(temporary)
        os.rename(temporary, path)
        sync_folder(self.path)
        write_json(self.path / "latest.json", {"checkpoint": path.name})
        return Checkpoint(path, summary)

    def _free_path(self, counters: State) -> Path:
        """Two saves may fall on the same counts, before and after an evaluation: the later one sorts behind."""
        stem = f"{counters['env_steps']:012d}-{counters['updates']:012d}"
        number = 0
        while (path := self.path / (f"{stem}-{number}" if number else stem)).exists():
            number += 1
        return path


def _delete_folder(path: Path) -> None:
    """Rename first: a crash in the middle must not leave half a checkpoint under its name."""
    doomed = path.with_name(f".{path.name}.new")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
