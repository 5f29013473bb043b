"""Tools to spoil checkpoints, and to make a spoilt one look sound again, as an attacker could."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.resume.pieces import PPO, stopping_after, train

STOPPED = (*PPO, "checkpoint.keep_last=3")
STEPS = 1000


def make_stopped_run(runs_dir: Path) -> Path:
    """A run with three checkpoints and something left to do."""
    with stopping_after(28):
        return train(STOPPED, runs_dir, STEPS)


def copy_run(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name))


def undo_saving(run: Path) -> None:
    """Make it a run that was killed before its first checkpoint."""
    shutil.rmtree(run / "checkpoints")
    (run / "status.json").write_text('{"state": "running"}')


def newest(run: Path, number: int = -1) -> Path:
    return sorted(run.glob("checkpoints/0*"))[number]


def flip_byte(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def reseal_policies(run: Path) -> None:
    """Bring the hashes of altered policies in order."""
    for path in run.glob("policies/*/digests.json"):
        names = json.loads(path.read_text())
        path.write_text(json.dumps({name: digest((path.parent / name).read_bytes()) for name in names}))


def reseal(checkpoint: Path, **changes: Any) -> None:
    """Bring all hashes of an altered checkpoint in order, after other changes to its summary."""

    def change(summary: dict[str, Any]) -> None:
        del summary["digest"]
        files = {name: digest((checkpoint / name).read_bytes()) for name in summary["files"]}
        summary.update({"files": files, **changes})
        summary["digest"] = digest(json.dumps(summary, sort_keys=True).encode())

    change_json(checkpoint / "checkpoint.json", change)
