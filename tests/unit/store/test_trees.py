"""Trees on disk: reading returns what was written, and damage is reported."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from reverie.core.errors import RunError
from reverie.core.types import Sealed
from reverie.store import files
from reverie.store import trees as storage
from reverie.store.files import explain_write_errors
from reverie.store.trees import SealedStore, read_tree, write_tree
from tests.sessions import assert_same_state

GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ARRAYS = {
    "plain": GRID,
    "transposed": GRID.T,
    "every second": GRID[:, ::2],
    "backwards": np.arange(5)[::-1],
    "spread out": np.broadcast_to(np.float64(3), (2, 3)),
    "column order": np.asfortranarray(GRID[0]),
    "a number": np.array(1.5),
    "empty": np.zeros((0, 3), np.int16),
    **{str(kind): np.array([0, 1, 1], kind) for kind in ("bool", "uint8", "int8", "int32", "int64", "float16")},
    "special": np.array([np.nan, np.inf, -np.inf, -0.0]),
}
PLAIN = {
    "none": None, "yes": True, "number": 3, "big": 2**100, "float": 0.1, "tiny": 5e-324, "infinite": float("inf"),
    "text": "ä\n", "list": [1, [2.5, "x", None]], "empty list": [], "empty dict": {}, "nested": {"a/b": {"c": 1}},
}  # fmt: skip


def round_trip(tmp_path: Path, tree: dict[str, Any]) -> dict[str, Any]:
    write_tree(tmp_path / "tree", tree)
    return read_tree(tmp_path / "tree")


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_keep_every_bit(tmp_path: Path, name: str) -> None:
    found = round_trip(tmp_path, {"a": {"list": [1, ARRAYS[name]]}})["a"]["list"][1]
    assert found.dtype == ARRAYS[name].dtype
    assert found.shape == ARRAYS[name].shape
    assert found.tobytes() == ARRAYS[name].tobytes()
    found[...] = 0  # what is read may be written to


def test_a_file_of_arrays_is_what_the_library_of_its_format_writes(tmp_path: Path) -> None:
    arrays = {**ARRAYS, **{name: np.arange(3).astype(name) for name in storage.DTYPES}, 'ä"\\\n': GRID}
    storage.write_arrays(tmp_path / "file", arrays)
    expected = safetensors.numpy.save({key: array.copy(order="C") for key, array in arrays.items()})
    assert (tmp_path / "file").read_bytes() == expected


def test_numbers_with_their_highest_byte_first_come_back(tmp_path: Path) -> None:
    assert round_trip(tmp_path, {"a": GRID.astype(">f4")})["a"].tolist() == GRID.tolist()


def test_writing_and_hashing_big_arrays_takes_little_memory(tmp_path: Path) -> None:
    big = np.ones(30_000_000, np.uint8)
    tracemalloc.start()
    write_tree(tmp_path / "tree", {"big": big})
    digests = files.digest_files(tmp_path)
    files.check_file(tmp_path / "tree.safetensors", digests["tree.safetensors"])
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()


def test_everything_else_comes_back_too(tmp_path: Path) -> None:
    assert round_trip(tmp_path, PLAIN) == PLAIN
    assert not (tmp_path / "tree.safetensors").exists()


def test_scalars_tuples_and_tensors_come_back_in_plain_form(tmp_path: Path) -> None:
    found = round_trip(tmp_path, {"pair": (1, 2), "scalar": np.float32(0.5), "flag": np.True_, "tensor": torch.ones(2)})
    assert found["pair"] == [1, 2]
    assert (found["scalar"], found["flag"]) == (0.5, True)
    assert type(found["flag"]) is bool
    assert found["tensor"].tolist() == [1, 1]


def test_keys_with_slashes_do_not_get_mixed_up(tmp_path: Path) -> None:
    tree = {"obs/0": np.zeros(2), "obs": {"0": np.ones(2)}}
    assert_same_state(round_trip(tmp_path, tree), tree)


def test_writing_again_replaces_what_was_there(tmp_path: Path) -> None:
    round_trip(tmp_path, {"a": np.zeros(3), "b": 1})
    assert_same_state(round_trip(tmp_path, {"a": np.ones(2)}), {"a": np.ones(2)})


def test_sealed_arrays_are_written_once_and_shared(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    sealed = Sealed("chunk-1", {"obs": GRID.T, "reward": np.zeros(2)})
    (name,) = write_tree(tmp_path / "one", {"rows": [sealed], "n": 1}, store)
    (file,) = store.folder.iterdir()
    written = file.stat().st_mtime_ns
    assert write_tree(tmp_path / "two", {"rows": [sealed], "n": 2}, store) == [name]
    assert [file] == list(store.folder.iterdir())
    assert file.stat().st_mtime_ns == written
    assert file.read_bytes() not in (tmp_path / "one.json").read_bytes()

    found = read_tree(tmp_path / "two", store)["rows"][0]
    assert isinstance(found, Sealed)
    assert (found.name, found.digest) == ("chunk-1", sealed.digest)
    assert_same_state(found.arrays, sealed.arrays)


def test_without_a_store_sealed_arrays_are_part_of_the_tree(tmp_path: Path) -> None:
    assert write_tree(tmp_path / "tree", {"rows": Sealed("chunk", {"obs": GRID})}) == []
    assert_same_state(read_tree(tmp_path / "tree"), {"rows": {"obs": GRID}})


def test_sealed_arrays_that_nobody_needs_are_deleted(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    names = [store.put(Sealed("chunk", {"obs": np.full(3, number)})) for number in range(3)]
    store.delete_except({names[1]})
    assert store.get(names[1]).arrays["obs"].tolist() == [1, 1, 1]
    with pytest.raises(RunError, match="is missing"):
        store.check(names[0])


def test_half_written_sealed_arrays_are_deleted(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    name = store.put(Sealed("chunk", {"obs": GRID}))
    (store.folder / "other.new").write_bytes(b"half")
    store.delete_except({name})
    assert [path.stem for path in store.folder.iterdir()] == [name]


def test_the_name_of_sealed_arrays_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    store = SealedStore(tmp_path / "sealed")
    store.put(Sealed("chunk", {"obs": GRID}))
    assert synced == [store.folder]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.ENOTEMPTY, errno.ENOTDIR, errno.ENOENT])
def test_write_errors_inside_of_the_run_are_explained(tmp_path: Path, number: int) -> None:
    with pytest.raises(RunError, match="could not be written") as caught, explain_write_errors(tmp_path, "go on"):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))
    assert caught.value.fix.endswith("go on")


def test_a_run_folder_that_is_gone_is_explained(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunError, match="no longer exists"), explain_write_errors(run, ""):
        (run / "status.json").write_text("")


def test_a_file_of_the_env_that_is_missing_is_not_the_disks_fault(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(FileNotFoundError), explain_write_errors(tmp_path / "run", ""):
        (tmp_path / "maze.txt").read_text()


def test_a_changed_sealed_array_is_noticed(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    write_tree(tmp_path / "tree", {"rows": Sealed("chunk", {"obs": GRID})}, store)
    (file,) = store.folder.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    found = read_tree(tmp_path / "tree", store)["rows"]
    with pytest.raises(RunError, match="does not match the hash"):
        found.arrays  # noqa: B018 - read when asked for


def test_arrays_of_another_store_are_not_copied(tmp_path: Path) -> None:
    here, there = SealedStore(tmp_path / "here"), SealedStore(tmp_path / "there")
    saved = here.get(here.put(Sealed("chunk", {"obs": GRID})))
    name = there.put(saved)
    assert there.path(name).stat().st_ino == saved.path.stat().st_ino
    here.delete(name)
    there.check(name)


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(storage, "write_arrays", full)
    store = SealedStore(tmp_path / "sealed")
    with pytest.raises(OSError, match="No space"):
        store.put(Sealed("chunk", {"obs": GRID}))
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "chunk", "chunk.0123", "a/b." + "0" * 32])
def test_a_tree_cannot_name_files_outside_of_the_store(tmp_path: Path, name: str) -> None:
    (tmp_path / "tree.json").write_text(json.dumps({"rows": {"__sealed__": name}}))
    with pytest.raises(RunError, match="is not the name of saved arrays"):
        read_tree(tmp_path / "tree", SealedStore(tmp_path / "sealed"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "damaged"),
        ("[1]", "not a mapping"),
        ('{"a": {"__array__": "/gone"}}', "damaged"),
        ('{"a": {"__sealed__": "chunk.0"}}', "belong to checkpoints only"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_a_damaged_tree_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "tree.json").write_text(text)
    with pytest.raises(RunError, match=complaint):
        read_tree(tmp_path / "tree")


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"tree\.json is missing"):
        read_tree(tmp_path / "tree")
    write_tree(tmp_path / "tree", {"a": np.zeros(3)})
    (tmp_path / "tree.safetensors").write_bytes(b"not arrays")
    with pytest.raises(RunError, match="tree is damaged"):
        read_tree(tmp_path / "tree")
