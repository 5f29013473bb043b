"""Tags and notes of runs."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.store.labels import Labels, change_labels, read_labels


def test_labels_are_changed_and_read_back(tmp_path: Path) -> None:
    assert read_labels(tmp_path) == Labels()
    change_labels(tmp_path, lambda labels: labels.with_tags("b", "a", "b"))
    change_labels(tmp_path, lambda labels: labels.with_note("  why \n"))
    assert read_labels(tmp_path) == Labels(("b", "a"), "why")
    assert change_labels(tmp_path, lambda labels: labels.without_tags("b", "missing")).tags == ("a",)


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: change_labels(tmp_path, lambda labels: labels.with_tags(f"t{i}")), range(40)))
    assert set(read_labels(tmp_path).tags) == {f"t{i}" for i in range(40)}


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "x" * 51, "-a", "a=b"])
def test_a_tag_must_fit_into_a_filter(tag: str) -> None:
    with pytest.raises(RunError, match="cannot be a tag"):
        Labels().with_tags(tag)


def test_a_long_note_is_refused() -> None:
    with pytest.raises(RunError, match="2,000 characters"):
        Labels().with_note("x" * 2001)


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text('{"tags": "paper"}')
    with pytest.raises(RunError, match="damaged"):
        change_labels(tmp_path, lambda labels: labels.with_tags("a"))
    assert (tmp_path / "labels.json").read_text() == '{"tags": "paper"}'


def test_a_link_leads_no_label_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "labels.json.new").symlink_to(other)
    change_labels(run, lambda labels: labels.with_tags("a"))
    assert other.read_text() == "precious"
    (run / "labels.json.lock").unlink()
    (run / "labels.json.lock").symlink_to(tmp_path / "created")
    with pytest.raises(RunError, match="could not be written"):
        change_labels(run, lambda labels: labels.with_tags("b"))
    assert not (tmp_path / "created").exists()


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_labels(tmp_path, lambda labels: labels.with_tags("a"))

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("reverie.store.run_folder.write_bytes", fail)
    with pytest.raises(RunError, match="No space left"):
        change_labels(tmp_path, lambda labels: labels.with_tags("b"))
    assert read_labels(tmp_path).tags == ("a",)
