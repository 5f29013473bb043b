"""Columns for Scope, danijar's viewer of metrics, in ``<run>/scope``.

One entry per metric, whose name may have one slash (``a/b`` becomes ``a-b``):

* numbers: a file ``key.float`` of 16-byte records, step and value, big-endian;
* text, images and videos: a folder ``key.txt``, ``.png`` or ``.mp4`` with one file per value and an ``index`` of
  16-byte records, step and id, in the byte order of the machine.

Every start writes the numbers anew from the JSONL files, so a resume repeats nothing and a record that a crash left
incomplete, which would make a column unreadable, is gone. Media after the checkpoint are deleted.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reverie.core.config import ComponentConfig
from reverie.log.loggers import RunInfo
from reverie.log.media import encode_png
from reverie.log.sinks import ALERTS, KINDS, read_jsonl
from reverie.store.files import delete_any

NUMBER = struct.Struct(">qd")
MEDIUM = struct.Struct("q8s")
NOT_CURVES = ("env_steps", "phase", "time")
FPS = 10
MEDIA = (".txt", ".png", ".mp4")


class ScopeConfig(ComponentConfig):
    """Writes columns for the viewer Scope into the run folder."""

    kind: str = "scope"
    enabled: bool = False
    """Write them. Show them with the package scope: scope --basedir runs."""


class ScopeSink:
    """Writes all metrics, machine records, episode returns, alerts, figures and videos over env steps (or updates)."""

    Config = ScopeConfig

    def __init__(self, config: ScopeConfig, run: RunInfo) -> None:
        self.folder = run.folder / "scope"
        self._counter = run.counter
        self._keys: dict[str, str] = {}
        self._pending: dict[str, bytearray] = {}
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.glob("*.float"):
            path.unlink()
        for path in self.folder.iterdir():
            if path.suffix in MEDIA:
                _drop_later(path, getattr(run, run.counter))
        for kind in KINDS:
            if kind not in ALERTS:  # those are texts, which were kept
                for record in read_jsonl(run.folder / f"{kind}.jsonl"):
                    self._add_numbers(kind, record)
        self._flush()

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        step = int(record.get(self._counter, 0))
        if kind in ALERTS:
            text = f"{record['rule']}: {record['message']}"
            self._add_medium("monitor/alerts", ".txt", step, lambda path: path.write_text(text, encoding="utf-8"))
        elif kind == "figure":
            image = record["image"][..., :3]
            self._add_medium(record["name"], ".png", step, lambda path: path.write_bytes(encode_png(image)))
        elif kind == "video" and _can_encode():
            self._add_medium(record["name"], ".mp4", step, lambda path: _write_video(path, record["frames"]))
        else:
            self._add_numbers(kind, record)
            if kind == "metrics":  # the others come often, and wait for the next line of metrics
                self._flush()

    def close(self) -> None:
        self._flush()

    def _add_numbers(self, kind: str, record: Mapping[str, Any]) -> None:
        step = int(record.get(self._counter, 0))  # machine records of older runs lack updates
        if kind == "scores":
            values = {"episode/return": record["return"], "episode/length": record["length"]}
        elif kind in ("metrics", "machine"):
            values = {name: value for name, value in record.items() if name not in NOT_CURVES}
        else:
            return
        for name, value in values.items():
            if isinstance(value, int | float):
                self._pending.setdefault(f"{self._key(name)}.float", bytearray()).extend(NUMBER.pack(step, value))

    def _flush(self) -> None:
        for name, records in self._pending.items():
            with (self.folder / name).open("ab") as file:
                file.write(records)
        self._pending.clear()

    def _add_medium(self, name: str, ending: str, step: int, save: Callable[[Path], object]) -> None:
        """Write the file first, then its record: a reader never finds a record without its file."""
        folder = self.folder / f"{self._key(name)}{ending}"
        folder.mkdir(exist_ok=True)
        ident = int(time.time()).to_bytes(4, "big") + secrets.token_bytes(4)  # not from the run's random streams
        save(folder / _file_name(step, ident, ending))
        with (folder / "index").open("ab") as file:
            file.write(MEDIUM.pack(step, ident))

    def _key(self, name: str) -> str:
        """The metric's name as a file name. Two names that would be equal get a number."""
        if name not in self._keys:
            group, slash, rest = name.lower().partition("/")
            key = "-".join(re.sub(r"[^a-z0-9_]", "_", part) or "_" for part in ((group, rest) if slash else (group,)))
            taken = set(self._keys.values())
            number = 2
            self._keys[name] = key
            while self._keys[name] in taken:
                self._keys[name] = f"{key}_{number}"
                number += 1
        return self._keys[name]


def _drop_later(folder: Path, position: int) -> None:
    """Delete the media after a position, and whatever has no complete record."""
    index = folder / "index"
    data = index.read_bytes() if index.is_file() else b""
    whole = data[: len(data) - len(data) % MEDIUM.size]
    kept = [(step, ident) for step, ident in MEDIUM.iter_unpack(whole) if step <= position]
    names = {_file_name(step, ident, folder.suffix) for step, ident in kept}
    for path in folder.iterdir():
        if path.name not in names and path != index:
            delete_any(path)
    if not kept:
        delete_any(folder)
        return
    temporary = folder / ".index.new"
    temporary.write_bytes(b"".join(MEDIUM.pack(*record) for record in kept))
    os.replace(temporary, index)


def _file_name(step: int, ident: bytes, ending: str) -> str:
    return f"{step:020}-{ident.hex()}{ending}"


def _can_encode() -> bool:
    """Whether the extra for mp4 files is installed. Imported late: configs import this module."""
    from reverie.log.video import is_installed

    return is_installed()


def _write_video(path: Path, frames: Any) -> None:
    """At ten frames per second, as Scope writes them. 4:2:0 video needs even sizes."""
    from reverie.log.video import open_video

    height, width = (size - size % 2 for size in frames.shape[1:3])
    with open_video(path, FPS, quick=True) as video:
        for frame in frames[:, :height, :width]:
            video.add(frame.copy())
