"""Runs whose replay lies on disk: the same bits as in memory, also after kill -9; a disk that fills up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reverie import api
from reverie.config.decide import choose_storage
from reverie.config.files import read_config
from reverie.core.errors import RunError
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.data import columns
from reverie.envs.make import make_specs
from reverie.runs.verify import verify_run
from reverie.store import trees as storage
from reverie.store.run_folder import RunFolder
from tests.resume.pieces import CHECKING, assert_equal_runs, train
from tests.resume.test_kill import die_at_disk_operation

WORDS = (*CHECKING, "buffers.main={kind: replay, capacity: 96, min_rows: 24, chunk_rows: 12}", "algorithm.batch_size=2",
         "phases.learn.hooks=[{collect: {rows: 24}}, {update_windows: {updates: 2}}]",
         "checkpoint.every_steps=100", "log.every_steps=1")  # fmt: skip
DISK = (*WORDS, "buffers.main.storage=disk")


@pytest.fixture(autouse=True)
def _every_column_counts_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the flags, so that rows of a few numbers go to files as well."""
    monkeypatch.setattr(columns, "WIDE_BYTES", 1)


def test_storage_does_not_change_a_run(tmp_path: Path) -> None:
    disk, memory = train(DISK, tmp_path / "disk", steps=400), train(WORDS, tmp_path / "memory", steps=400)
    assert_equal_runs(disk, memory)
    assert read_config(memory / "config.yaml").buffers["main"].storage == "memory"  # auto was decided
    assert [verdict.differences for verdict in verify_run(RunFolder(disk))] == [[]]


def test_dying_at_any_disk_operation_changes_nothing(tmp_path: Path) -> None:
    calm = train(WORDS, tmp_path / "calm", steps=400)
    rng, deaths = make_generator("storm on disk"), 0
    while die_at_disk_operation(int(rng.integers(5, 150)), DISK, tmp_path / "stormy", steps=400):
        deaths += 1
    assert deaths >= 3
    assert_equal_runs(api.find("@last", tmp_path / "stormy").path, calm)


def test_a_resume_may_change_the_storage_and_stays_exact(tmp_path: Path) -> None:
    run = train(WORDS, tmp_path / "moved", steps=200)
    api.resume(str(run), "buffers.main.storage=disk", steps=300, trust=True)
    api.resume(str(run), "buffers.main.storage=memory", steps=400, trust=True)
    assert '"keeps_exactness": false' not in (run / "resumes.jsonl").read_text()
    assert_equal_runs(run, train((*WORDS, "horizon_steps=200"), tmp_path / "straight", steps=400))


def test_a_disk_that_fills_up_loses_nothing_up_to_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = storage.write_arrays, 14

    def write_while_there_is_room(path: Path, arrays: Row) -> None:
        nonlocal room
        if path.parent.name == "sealed":
            room -= 1
            if room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, arrays)

    monkeypatch.setattr(storage, "write_arrays", write_while_there_is_room)
    with pytest.raises(RunError, match="the disk is full") as caught:
        train(DISK, tmp_path / "full", steps=400)
    run = api.find("@last", tmp_path / "full").path
    assert f"reverie resume {run.name}" in caught.value.fix
    room = 1000
    assert api.resume(str(run), trust=True).state == "finished"
    assert_equal_runs(run, train(WORDS, tmp_path / "calm", steps=400))


def test_auto_takes_the_disk_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    config = api.make_config("CartPole-v1:dqn")
    assert config.buffers["main"].storage == "memory"
    undecided = config.model_copy(
        update={"buffers": {"main": config.buffers["main"].model_copy(update={"storage": "auto"})}}
    )
    monkeypatch.setattr("reverie.config.decide.free_memory", lambda: 1_000_000)
    specs = make_specs(config.env)
    assert choose_storage(undecided, specs).buffers["main"].storage == "disk"
    assert choose_storage(config, specs).buffers["main"].storage == "memory"  # decided once
