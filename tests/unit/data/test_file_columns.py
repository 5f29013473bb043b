"""A buffer whose rows lie in files, compared with one in memory; what it takes of memory and disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import RunError
from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row, WriteBack
from reverie.data import file_columns
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.store.trees import SealedStore, read_tree, write_tree

SPECS = Specs(
    {"obs": ObservationSpec((10, 10, 4), "uint8", "image"), "obs/x": ObservationSpec((20,), "float32", "vector")},
    ActionSpec("discrete", (), "int64", (9,)),
)
READS = [Transitions(16), Transitions(16, 3), Window(8, 6), Window(8, 4, pad_before=1, pad_after=2)]


def make_row(time: int) -> Row:
    start = time - time % 7
    frames = np.stack([np.full((2, 10, 10), max(start, time - age) % 256) for age in (3, 2, 1, 0)], -1)
    vector = np.stack([np.full((2, 5), max(start, time - age) / 8) for age in (3, 2, 1, 0)], 1).reshape(2, 20)
    return {
        "obs": frames.astype(np.uint8), "obs/x": vector.astype(np.float32), "reward": np.full(2, time, np.float32),
        "is_first": np.full(2, time % 7 == 0), "terminated": np.full(2, time % 7 == 6), "truncated": np.zeros(2, bool),
        "action": np.array([time % 9, 0]),
    }  # fmt: skip


def make_buffer(folder: Path | None, steps: int = 0, **settings: Any) -> ReplayBuffer:
    settings = {"capacity": 64, "chunk_rows": 8, "storage": "disk" if folder else "memory", **settings}
    buffer = ReplayBuffer(ReplayBuffer.Config(**settings), SPECS, 2, SealedStore(folder) if folder else None)
    for time in range(steps):
        buffer.add(make_row(time))
    return buffer


def assert_same_samples(one: ReplayBuffer, other: ReplayBuffer, name: object) -> None:
    for read in READS:
        assert one.can_sample(read) == other.can_sample(read)
        if one.can_sample(read):
            ours, theirs = (buffer.sample(read, {}, make_generator(name)) for buffer in (one, other))
            assert list(ours) == list(theirs)
            for key in ours:
                assert ours[key].dtype == theirs[key].dtype
                np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)


@pytest.mark.parametrize("frames", [1, 4])
def test_samples_are_those_of_a_buffer_in_memory(frames: int, tmp_path: Path) -> None:
    settings = {"stacked_frames": frames, "sampler": {"kind": "prioritised"}}
    disk, memory = make_buffer(tmp_path, **settings), make_buffer(None, **settings)
    for time in range(100):
        for buffer in (disk, memory):
            buffer.add(make_row(time))
            buffer.write_back(WriteBack(buffer.rows.ids[-3:], {"priority": np.arange(1.0, 4)[-len(buffer) :]}))
        if time < 6 or time % 9 == 0:
            assert_same_samples(disk, memory, time)
    assert disk.rows.oldest > 0
    assert disk.memory_bytes < memory.memory_bytes / 2


@pytest.mark.parametrize("kinds", ["disk to disk", "memory to disk", "disk to memory", "disk to another folder"])
@pytest.mark.parametrize("steps", [0, 4, 37, 101])
def test_a_restored_buffer_goes_on(steps: int, kinds: str, tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    buffer = make_buffer(None if kinds.startswith("memory") else store.folder, steps)
    write_tree(tmp_path / "buffer", buffer.state(), store)
    target = {"disk to memory": None, "disk to another folder": tmp_path / "other"}.get(kinds, store.folder)
    copy = make_buffer(target, 9)
    copy.load_state(read_tree(tmp_path / "buffer", store))
    assert write_tree(tmp_path / "again", copy.state(), store) == write_tree(tmp_path / "buffer", buffer.state(), store)
    for time in range(steps, steps + 24):
        buffer.add(make_row(time))
        copy.add(make_row(time))
        if time % 6 == 0:
            assert_same_samples(copy, buffer, time)


def test_checkpoints_name_the_files_of_the_buffer(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    buffer = make_buffer(store.folder, 13)
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert len(before) == 3
    assert {store.path(name) for name in write_tree(tmp_path / "buffer", buffer.state(), store)} == set(before)
    assert {path: path.stat().st_mtime_ns for path in store.folder.iterdir()} == before


def test_files_go_when_the_ring_comes_round_unless_a_checkpoint_names_them(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "sealed")
    buffer = make_buffer(store.folder, 13)
    named = set(write_tree(tmp_path / "buffer", buffer.state(), store))
    for time in range(13, 200):
        buffer.add(make_row(time))
        assert len(list(store.folder.iterdir())) <= len(named) + buffer.rows.num_chunks
    assert {path.stem for path in store.folder.iterdir()} >= named
    store.delete_except(set(write_tree(tmp_path / "later", buffer.state(), store)))
    assert len(list(store.folder.iterdir())) == 9
    buffer.clear()
    assert len(list(store.folder.iterdir())) == 9  # a checkpoint may need them
    assert_same_samples(buffer, make_buffer(None), "empty")


def test_there_may_be_more_chunks_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_columns, "_MAX_OPEN_FILES", 2)
    assert_same_samples(make_buffer(tmp_path, 50), make_buffer(None, 50), "few")


@pytest.mark.parametrize("damage", ["cut", "gone", "nonsense"])
def test_a_file_that_is_damaged_in_mid_run_is_named(damage: str, tmp_path: Path) -> None:
    buffer = make_buffer(tmp_path, 30)
    for path in tmp_path.iterdir():
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:400] if damage == "cut" else b"nonsense" * 9)
    with pytest.raises(RunError, match="rows-"):
        buffer.sample(Window(64, 3), {}, make_generator(0))


MEASURE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from reverie.core.reads import Transitions
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.store.trees import SealedStore, read_tree, write_tree

def resident(which):
    return 1024 * int(Path("/proc/self/status").read_text().split(which + ":")[1].split()[0])

mode, storage, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
specs = Specs({"obs": ObservationSpec((84, 84, 1), "uint8", "image")}, ActionSpec("discrete", (), "int64", (2,)))
config = ReplayBuffer.Config(capacity=12_000, chunk_rows=600, storage=storage)
store = SealedStore(folder / "sealed")
before = resident("VmRSS")
buffer = ReplayBuffer(config, specs, 1, store)
if mode == "fill":
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 255, (1, 84, 84, 1), np.uint8)
    for time in range(12_600):
        buffer.add({"obs": frame + np.uint8(time % 251), "reward": np.ones(1, np.float32), "action": np.zeros(1, int),
            **{key: np.zeros(1, bool) for key in ("is_first", "terminated", "truncated")}})
        if time > 2 and time % 50 == 0:
            buffer.sample(Transitions(32), {}, rng)
    write_tree(folder / "buffer", buffer.state(), store)
else:
    buffer.load_state(read_tree(folder / "buffer", store))
    buffer.sample(Transitions(32), {}, np.random.default_rng(0))
forecast = forecast_buffer(config, ExpectedRows(specs, 1))
files = sum(path.stat().st_size for path in store.folder.iterdir())
print(json.dumps({"taken": resident("VmRSS") - before, "peak": resident("VmHWM") - before,
    "forecast": forecast.memory, "disk": forecast.disk, "files": files}))
"""


def measure(mode: str, storage: str, folder: Path) -> dict[str, int]:
    command = [sys.executable, "-c", MEASURE, mode, storage, str(folder)]
    found: dict[str, int] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def test_memory_stays_small_and_loading_takes_no_more_than_the_buffer(tmp_path: Path) -> None:
    filled = measure("fill", "disk", tmp_path)
    rows = 12_600 * (84 * 84)
    assert filled["peak"] < 0.35 * rows
    assert abs(filled["files"] - filled["disk"]) < 0.1 * filled["disk"]
    assert filled["taken"] < 1.1 * filled["forecast"] + 10e6
    assert measure("load", "disk", tmp_path)["peak"] < 0.25 * rows
    loaded = measure("load", "memory", tmp_path)
    assert 0.95 * rows < loaded["taken"]
    assert loaded["peak"] < 1.15 * rows + 20e6  # a chunk of 4 MB at a time, in a few copies


def test_the_forecast_tells_memory_and_disk_apart() -> None:
    on_disk, in_memory = (
        forecast_buffer(ReplayBuffer.Config(capacity=8000, chunk_rows=1000, storage=storage), ExpectedRows(SPECS, 2))
        for storage in ("disk", "memory")
    )
    assert in_memory.disk == 0
    assert in_memory.memory - on_disk.memory == 9000 * (400 + 80) - 3 * 1000 * (400 + 80)
    assert on_disk.disk == 9000 * (400 + 80 + 4 + 4 + 8)
