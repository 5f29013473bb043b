"""Checkpoints on disk, with parts that are nothing but their state."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.counters import Counters
from reverie.core.errors import RunError
from reverie.core.types import Sealed, State
from reverie.store.checkpoint import Checkpoint, CheckpointFolder

ABOUT = {"logs": {"metrics": 0}}


class Part:
    """Remembers what it is given."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def state(self) -> State:
        return self.values

    def load_state(self, state: State) -> None:
        self.values = state


def rows(number: int) -> Sealed:
    return Sealed(f"rows-{number}", {"obs": np.full((4, 2), number, np.float32)})


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path)


def save(folder: CheckpointFolder, env_steps: int, updates: int = 0, **parts: Any) -> Checkpoint:
    counters = Counters(env_steps=env_steps, updates=updates)
    return folder.save({"counters": counters, **{name: Part(**values) for name, values in parts.items()}}, ABOUT)


def test_what_was_saved_comes_back(folder: CheckpointFolder) -> None:
    state = {
        "weights": {"a.b": np.arange(6, dtype=np.float16).reshape(2, 3), "empty": np.zeros((0, 3), bool)},
        "number": np.float32(0.1), "big": 2**70, "nothing": None, "text": "ü\n", "list": [1, [2.5, None]],
        "infinite": float("inf"), "turned": np.arange(6).reshape(2, 3).T, "sealed": rows(1),
    }  # fmt: skip
    checkpoint = save(folder, 10, part=state)
    checkpoint.check()
    found = checkpoint.load_into({"counters": Counters(), "part": Part()})["part"]
    for name, array in state["weights"].items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found["weights"][name], array)
        assert found["weights"][name].dtype == array.dtype
    np.testing.assert_array_equal(found["turned"], state["turned"])
    np.testing.assert_array_equal(found["sealed"].arrays["obs"], rows(1).arrays["obs"])
    assert found["number"] == float(np.float32(0.1))
    plain = ("big", "nothing", "text", "list", "infinite")
    assert {key: found[key] for key in plain} == {key: state[key] for key in plain}


def test_checkpoints_are_in_the_order_in_which_they_were_made(folder: CheckpointFolder) -> None:
    names = [save(folder, 5, 1).name, save(folder, 5, 2).name, *(save(folder, 20, 2).name for _ in range(12))]
    assert [checkpoint.name for checkpoint in folder.all()] == names
    newest, complaints = folder.newest_sound()
    assert newest is not None
    assert (newest.name, complaints) == (names[-1], [])
    assert folder.find("20").name == names[-1]
    assert folder.find(names[0]).name == names[0]
    assert json.loads((folder.path / "latest.json").read_text()) == {"checkpoint": names[-1]}


def test_a_save_that_breaks_off_leaves_no_checkpoint(folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(folder, 1)

    def fail(*paths: Any) -> None:
        raise OSError("the power went off")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="power"):
            save(folder, 2)
    assert [checkpoint.name for checkpoint in folder.all()] == [first.name]
    assert list(folder.path.glob(".*.new"))
    save(folder, 2)
    folder.tidy({checkpoint.name for checkpoint in folder.all()})
    assert len(folder.all()) == 2
    assert not list(folder.path.glob(".*.new"))


def test_sealed_arrays_are_written_once_and_shared(folder: CheckpointFolder) -> None:
    save(folder, 1, buffer={"chunks": [rows(1)]})
    stamp = next(folder.store.folder.iterdir()).stat().st_mtime_ns
    second = save(folder, 2, buffer={"chunks": [rows(1), rows(2)]})
    assert [path.stat().st_mtime_ns for path in folder.store.folder.glob("rows-1.*")] == [stamp]
    assert len(second.summary["sealed"]) == 2
    folder.tidy({second.name})
    assert len(list(folder.store.folder.iterdir())) == 2
    third = save(folder, 3, buffer={"chunks": [rows(2)]})
    folder.tidy({third.name})
    assert [path.name.split(".")[0] for path in folder.store.folder.iterdir()] == ["rows-2"]
    assert [checkpoint.name for checkpoint in folder.all()] == [third.name]


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_sealed_arrays_are_checked(damage: str, folder: CheckpointFolder) -> None:
    sound = save(folder, 1, buffer={"chunks": [rows(1)]})
    save(folder, 2, buffer={"chunks": [rows(1), rows(2)]})
    (path,) = folder.store.folder.glob("rows-2.*")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\7")
    newest, complaints = folder.newest_sound()
    assert newest is not None
    assert newest.name == sound.name
    assert len(complaints) == 1
    assert "rows-2" in complaints[0]


def test_only_the_parts_that_were_saved_can_be_loaded(folder: CheckpointFolder) -> None:
    checkpoint = save(folder, 1, part={})
    with pytest.raises(RunError, match="only one of the two has the parts other"):
        checkpoint.load_into({"counters": Counters(), "part": Part(), "other": Part()})


def test_what_came_after_can_be_dropped(folder: CheckpointFolder) -> None:
    first, second, third = (save(folder, steps) for steps in (1, 2, 3))
    (third.path / "checkpoint.json").unlink()
    assert [path.name for path in folder.newer_than(first)] == [second.name, third.name]
    folder.drop_newer(first)
    assert folder.paths() == [first.path]


def test_an_unknown_checkpoint_is_answered_with_the_known_ones(folder: CheckpointFolder) -> None:
    save(folder, 7)
    with pytest.raises(RunError, match="no checkpoint '8'") as caught:
        folder.find("8")
    assert "7" in caught.value.fix
