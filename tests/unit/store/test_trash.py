"""Moving parts of runs to the trash and back, also when something goes wrong in between."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.store import trash
from reverie.store.lock import lock_run
from tests.run_folders import write_run


def add_parts(run: Path) -> None:
    (run / "checkpoints" / "sealed").mkdir(parents=True)
    (run / "checkpoints" / "sealed" / "chunk.safetensors").write_bytes(b"x" * 1000)
    (run / "policies").mkdir()
    (run / "policies" / "policy.json").write_bytes(b"y" * 10)
    (run / "metrics.csv").write_text("z" * 5)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = write_run(tmp_path, "a")
    add_parts(run)
    return run


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def test_what_is_moved_comes_back(run: Path) -> None:
    before = content(run)
    entry = trash.move_to_trash(run, trash.existing_parts(run))
    assert not (run / "checkpoints").exists()
    assert {"config.yaml", "metrics.jsonl", "status.json", "scores.jsonl"} <= set(content(run))
    assert trash.is_cleaned(run)
    assert trash.read_trash(run.parent) == [entry]
    trash.restore(entry)
    after = content(run)
    after.pop("lock")
    assert after == before
    assert trash.read_trash(run.parent) == []


def test_unknown_folders_of_the_user_stay(run: Path) -> None:
    (run / "notes").mkdir()
    assert {part.name for part in trash.existing_parts(run)} == {"checkpoints", "policies", "metrics.csv"}


def test_a_run_in_use_is_left_alone(run: Path) -> None:
    before = content(run)
    with lock_run(run), pytest.raises(RunError, match="another process"):
        trash.move_to_trash(run, trash.existing_parts(run))
    after = content(run)
    after.pop("lock")
    assert after == before
    assert trash.read_trash(run.parent) == []


def test_a_move_that_fails_half_way_is_undone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = content(run), os.rename

    def fail_at_policies(source: Path, target: Path) -> None:
        if Path(source) == run / "policies":
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(trash.os, "rename", fail_at_policies)
    with pytest.raises(RunError, match="No space left"):
        trash.move_to_trash(run, trash.existing_parts(run))
    after = content(run)
    after.pop("lock")
    assert after == before


def test_a_crash_half_way_can_be_restored(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = content(run), os.rename

    def crash_at_policies(source: Path, target: Path) -> None:
        if Path(source) == run / "policies":
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(trash.os, "rename", crash_at_policies)
        with pytest.raises(KeyboardInterrupt):
            trash.move_to_trash(run, trash.existing_parts(run))
    (entry,) = trash.read_trash(run.parent)
    trash.restore(entry)
    after = content(run)
    after.pop("lock")
    assert after == before


def test_a_run_that_was_trained_again_is_not_overwritten(run: Path) -> None:
    entry = trash.move_to_trash(run, trash.existing_parts(run))
    (run / "checkpoints").mkdir()
    with pytest.raises(RunError, match="has checkpoints again"):
        trash.restore(entry)
    assert trash.read_trash(run.parent) == [entry]


def test_shared_files_free_nothing_and_stay_intact(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path, "b")
    add_parts(other)
    shared = other / "checkpoints" / "sealed" / "chunk.safetensors"
    shared.unlink()
    os.link(run / "checkpoints" / "sealed" / "chunk.safetensors", shared)
    assert trash.freed_bytes(trash.existing_parts(run)) == 15
    assert trash.freed_bytes([*trash.existing_parts(run), *trash.existing_parts(other)]) == 1030
    trash.delete([trash.move_to_trash(run, trash.existing_parts(run))])
    assert shared.read_bytes() == b"x" * 1000
    assert trash.freed_bytes([shared]) == 1000


def test_parts_are_removed_also_on_a_full_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_json(path: Path, value: dict[str, object]) -> None:
        if (run / "checkpoints").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text(json.dumps(value))

    monkeypatch.setattr(trash, "write_json", write_json)
    with pytest.raises(RunError, match="No space left") as caught:
        trash.move_to_trash(run, trash.existing_parts(run))
    assert "--now" in caught.value.fix
    assert list((run.parent / trash.FOLDER).iterdir()) == []
    trash.remove(run, trash.existing_parts(run))
    assert trash.existing_parts(run) == []
    assert trash.is_cleaned(run)


def test_what_cannot_be_deleted_is_no_success(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trash, "delete_any", lambda path: None)
    with pytest.raises(RunError, match=r"checkpoints and policies and metrics\.csv cannot be deleted"):
        trash.remove(run, trash.existing_parts(run))


def test_links_are_moved_and_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("keep")
    (run / "videos").symlink_to(tmp_path / "elsewhere")
    trash.delete([trash.move_to_trash(run, trash.existing_parts(run))])
    assert (tmp_path / "elsewhere" / "precious").read_text() == "keep"


@pytest.mark.parametrize("name", ["../../outside", "..", "", "a/b"])
def test_an_entry_cannot_lead_out_of_the_folder(name: str, run: Path) -> None:
    entry = trash.move_to_trash(run, trash.existing_parts(run))
    (entry.path / "entry.json").write_text(json.dumps({"run": name, "time": 0}))
    assert trash.read_trash(run.parent) == []


def test_a_missing_run_is_explained(run: Path) -> None:
    entry = trash.move_to_trash(run, trash.existing_parts(run))
    run.rename(run.with_name("other"))
    with pytest.raises(RunError, match="'a' is gone"):
        trash.restore(entry)
