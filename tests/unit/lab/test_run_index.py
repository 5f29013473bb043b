"""The index of runs: what it must notice, and that nothing is lost when it is damaged, locked or cannot be written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.lab import fingerprint, index_file, run_index
from reverie.lab.filters import parse_filters
from reverie.lab.read_run import read_run
from reverie.lab.run_index import indexed_runs, rebuild
from reverie.store.labels import change_labels
from reverie.store.lock import lock_run
from reverie.store.run_summary import RunSummary
from tests.run_folders import write_lines, write_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and files that count as old at once."""
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fingerprint, "RECENT_NANOSECONDS", 0)
    return tmp_path / "cache"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for seed in (1, 2, 3):
        write_run(folder, f"a-s{seed}", "A-v0", seed, scores=(1.0, float(seed)))
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that are read from their folders, in order."""
    names: list[str] = []

    def note(path: Path) -> RunSummary:
        names.append(path.name)
        return read_run(path)

    monkeypatch.setattr(run_index, "read_run", note)
    return names


def listed(runs: Path, *notes: str) -> dict[str, RunSummary]:
    """The runs by name. Every note must contain the next of these words."""
    heard: list[str] = []
    found = {run.name: run for run in indexed_runs(runs, heard.append)}
    assert len(heard) == len(notes), heard
    assert all(word in text for word, text in zip(notes, heard, strict=True))
    return found


def test_the_index_says_what_the_folders_say(runs: Path, read: list[str]) -> None:
    change_labels(runs / "a-s1", lambda labels: labels.with_tags("paper").with_note("ünï"))
    (runs / "a-s2" / "manifest.json").write_text("{")
    first = listed(runs)
    assert sorted(read) == ["a-s1", "a-s2", "a-s3"]
    assert listed(runs) == first == {path.name: read_run(path) for path in runs.iterdir()}
    assert len(read) == 3
    assert first["a-s2"].problems


def test_only_new_and_changed_runs_are_read(runs: Path, read: list[str]) -> None:
    listed(runs)
    read.clear()
    write_run(runs, "b")
    change_labels(runs / "a-s2", lambda labels: labels.with_tags("good"))
    assert listed(runs)["a-s2"].tags == ("good",)
    assert sorted(read) == ["a-s2", "b"]


def test_moved_copied_and_deleted_folders_are_noticed(runs: Path, read: list[str]) -> None:
    listed(runs)
    shutil.copytree(runs / "a-s1", runs / "copy")
    (runs / "a-s2").rename(runs / "moved")
    (runs / "a-s1").rename(runs / "swap")
    (runs / "a-s3").rename(runs / "a-s1")
    (runs / "swap").rename(runs / "a-s3")
    assert {name: run.seed for name, run in listed(runs).items()} == {"copy": 1, "moved": 2, "a-s1": 3, "a-s3": 1}
    shutil.rmtree(runs / "copy")
    assert set(listed(runs)) == {"moved", "a-s1", "a-s3"}
    shutil.rmtree(runs)
    assert listed(runs) == {}


def test_a_file_changed_by_hand_is_noticed(runs: Path) -> None:
    listed(runs)
    status = runs / "a-s1" / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "best_score": 77.0}))
    assert listed(runs)["a-s1"].best_score == 77.0


def test_a_run_that_trains_is_followed(runs: Path, read: list[str]) -> None:
    run = write_run(runs, "live", state="running", env_steps=1)
    with lock_run(run):
        assert listed(runs)["live"].status == "running"
    read.clear()
    assert listed(runs)["live"].status == "interrupted"
    assert read == []  # the lock is asked each time
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"env_steps": 999, "updates": 9}\n')
    assert listed(runs)["live"].env_steps == 999


def test_a_run_written_just_now_is_read_again(runs: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "RECENT_NANOSECONDS", 1 << 60)
    listed(runs)
    listed(runs)
    assert len(read) == 6


@pytest.mark.parametrize(
    "content", [b"", b"no database at all, but long enough to be read" * 99, b"SQLite format 3\0" * 99]
)
def test_a_damaged_index_is_built_again(runs: Path, content: bytes) -> None:
    first = listed(runs)
    path = index_file.index_path(runs)
    path.write_bytes(content)
    assert listed(runs, *(["was damaged"] if content else [])) == first  # an empty file is a new database
    assert listed(runs) == first


def test_an_index_with_damaged_pages_is_built_again(runs: Path) -> None:
    first = listed(runs)
    path = index_file.index_path(runs)
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))
    assert listed(runs, "was damaged") == first


@pytest.mark.parametrize(
    "statement", ["DROP TABLE runs", "UPDATE runs SET tags = '[1'", "UPDATE runs SET problems = 5"]
)
def test_an_index_with_other_content_is_built_again(runs: Path, statement: str) -> None:
    first = listed(runs)
    with sqlite3.connect(index_file.index_path(runs)) as index:
        index.execute(statement)
    index.close()
    assert listed(runs, "was damaged") == first


def test_an_index_of_another_version_is_built_again_without_a_note(runs: Path, read: list[str]) -> None:
    first = listed(runs)
    with sqlite3.connect(index_file.index_path(runs)) as index:
        index.execute("PRAGMA user_version = 99")
    index.close()
    assert listed(runs) == first
    assert len(read) == 6


def test_a_cache_that_cannot_be_written_costs_only_time(runs: Path, cache: Path, read: list[str]) -> None:
    cache.write_text("not a folder")
    first = listed(runs, "cannot be written")
    assert len(first) == 3
    assert listed(runs, "cannot be written") == first


def test_a_full_disk_costs_only_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(runs)
    write_run(runs, "new")
    opened = index_file.open_index

    def full(path: Path, columns: tuple[str, ...]) -> sqlite3.Connection:
        index = opened(path, columns)
        index.execute("PRAGMA max_page_count = 1")  # SQLite's own way to say that the disk is full
        return index

    write_run(runs, "long", settings={str(number): 1 for number in range(3000)})
    for number in range(40):
        write_run(runs, f"more-{number}")
    monkeypatch.setattr(index_file, "open_index", full)
    assert len(listed(runs, "full")) == 45
    monkeypatch.setattr(index_file, "open_index", opened)
    assert len(listed(runs)) == 45


def test_a_locked_index_costs_only_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "WAIT_SECONDS", 0.0)
    listed(runs)
    write_run(runs, "new")
    other = sqlite3.connect(index_file.index_path(runs), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert len(listed(runs, "locked")) == 4
    other.close()


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be read: Not a directory"):
        indexed_runs(tmp_path / "file")
    assert indexed_runs(tmp_path / "nothing") == []


def test_strange_names_and_values_are_listed(runs: Path) -> None:
    strange = os.fsdecode(b"b\xff")
    run = write_run(runs, "odd")
    (run / "manifest.json").write_text(json.dumps({"spec": "\ud800:x", "seed": 10**30, "created": 1e300}))
    (run / "config.yaml").write_text('seed: 123456789012345678901234567890\nalgorithm: {kind: "\\udfff"}\n')
    write_run(runs, strange)
    first = listed(runs)
    assert first["odd"].seed is None
    assert set(first) == set(listed(runs)) == {"a-s1", "a-s2", "a-s3", "odd", "b?"}
    assert listed(runs)["b?"].path.name == strange


def test_two_processes_at_once_lose_nothing(runs: Path, cache: Path) -> None:
    """Both add runs and list them in turns; afterwards the index alone knows all of them."""
    program = """
import shutil
import sys
from pathlib import Path
from reverie.lab import fingerprint
from reverie.lab.run_index import indexed_runs
fingerprint.RECENT_NANOSECONDS = 0
runs, who = Path(sys.argv[1]), sys.argv[2]
for number in range(25):
    shutil.copytree(runs / "a-s1", runs / f"{who}-{number}")
    names = {run.name for run in indexed_runs(runs, lambda text: sys.exit(text))}
    assert {f"{who}-{before}" for before in range(number + 1)} <= names
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, str(runs), who]) for who in "xy"]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(listed(runs)) == 53
    with sqlite3.connect(index_file.index_path(runs)) as index:
        assert index.execute("SELECT COUNT(*) FROM runs").fetchone() == (53,)
    index.close()


def test_conditions_leave_runs_out_early(runs: Path) -> None:
    """Text, numbers and beginnings; not what depends on a lock or a config file."""
    words = ["final>=2", "env=a*", "seed!=3", "hash!=zz", "status=interrupted", "tag=x", "algorithm.gamma=7"]
    conditions, _ = parse_filters(words)
    assert [run.name for run in indexed_runs(runs, conditions=conditions)] == ["a-s2"]
    assert {run.name for run in indexed_runs(runs, conditions=conditions[:1])} == {"a-s2", "a-s3"}
    assert len(indexed_runs(runs)) == 3


def test_rebuild_reads_everything(runs: Path, read: list[str]) -> None:
    first = indexed_runs(runs)
    assert rebuild(runs) == first
    assert len(read) == 6


def test_old_indexes_are_deleted(runs: Path, cache: Path) -> None:
    old, young = cache / "index" / "old.sqlite", cache / "index" / "young.sqlite"
    old.parent.mkdir(parents=True)
    for path in (old, young):
        path.write_text("")
    os.utime(old, (0, 0))
    listed(runs)
    assert (old.exists(), young.exists()) == (False, True)


def test_the_summary_has_the_columns_of_the_index() -> None:
    run = RunSummary(Path("runs/x"), "x", tags=("a", "b"), problems=("p",), created=5.0)
    assert run_index._summary(Path("runs/x"), run_index._make_row("f", run)) == run
    other = replace(run, note="\ud800")
    assert run_index._summary(Path("runs/x"), run_index._make_row("f", other)).note == "?"


def test_a_run_without_metrics_or_half_written_is_listed(runs: Path) -> None:
    (runs / "half").mkdir()
    (runs / "half" / "config.yaml").write_text("seed: ")
    write_lines(runs / "half" / "metrics.jsonl", [])
    run = listed(runs)["half"]
    assert (run.status, run.best_score) == ("created", None)
    assert any("manifest.json" in problem for problem in run.problems)
