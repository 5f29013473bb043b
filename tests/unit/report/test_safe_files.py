"""Reading what anyone may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reverie.report import safe_files
from reverie.report.safe_files import Lines, Unreadable, as_number, plain_path, read_mapping


def test_numbers() -> None:
    assert as_number(3) == 3.0
    assert as_number(2.5) == 2.5
    for value in (True, None, "1", [], float("nan"), float("inf"), 10**400):
        assert as_number(value) is None


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1}',
        b'{"a": ',
        b"[1]",
        b"\xff\xfe",
        b"",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": NaN}',
    ]
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines) + b"\n" + b'{"a": 5}')
    problems: list[str] = []
    records = list(Lines(tmp_path, "x.jsonl", problems))
    assert [str(record["a"]) for record in records] == ["1", "nan"]  # the last line has no end yet
    assert problems == ["x.jsonl: 5 damaged lines were left out."]


def test_missing_files_are_empty(tmp_path: Path) -> None:
    problems: list[str] = []
    assert list(Lines(tmp_path, "x.jsonl", problems)) == []
    assert read_mapping(tmp_path, "x.json", problems) == {}
    assert problems == []


def test_lines_that_are_too_long_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_files, "LONGEST_LINE", 100)
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": "' + 450 * "x" + '"}\n{"a": 2}\n')
    problems: list[str] = []
    assert [record["a"] for record in Lines(tmp_path, "x.jsonl", problems)] == [1, 2]
    assert problems == ["x.jsonl: 1 damaged line was left out."]


def test_large_files_are_thinned_evenly_but_not_of_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"n": n, **({"evaluate/x": 1} if n % 10 == 7 else {})} for n in range(1000)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "x.jsonl").write_text(text)
    monkeypatch.setattr(safe_files, "READ_IN_FULL", len(text) // 4 + 1)
    problems: list[str] = []
    read = [record["n"] for record in Lines(tmp_path, "x.jsonl", problems, never_skip=b'"evaluate/')]
    assert [n for n in range(1000) if n % 4 == 0 or n % 10 == 7] == read
    assert "650 skipped" in problems[0]
    monkeypatch.setattr(safe_files, "ALWAYS_READ", 2)
    assert len(list(Lines(tmp_path, "x.jsonl", [], never_skip=b'"evaluate/'))) == 252


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": 1}')
    run = tmp_path / "run"
    run.mkdir()
    (run / "status.json").symlink_to(secret)
    (run / "videos").symlink_to(tmp_path)
    os.mkfifo(run / "metrics.jsonl")
    problems: list[str] = []
    assert read_mapping(run, "status.json", problems) == {}
    assert list(Lines(run, "metrics.jsonl", problems)) == []
    with pytest.raises(Unreadable, match="link"):
        plain_path(run, "videos/secret.json")
    assert len(problems) == 2


def test_documents_that_are_no_mapping(tmp_path: Path) -> None:
    for name, text in (("a.json", "[]"), ("b.json", "{"), ("c.json", "[" * 100_000)):
        (tmp_path / name).write_text(text)
        problems: list[str] = []
        assert read_mapping(tmp_path, name, problems) == {}
        assert problems == [f"{name} is damaged."]
    (tmp_path / "d.json").write_text(" " * (safe_files.LARGEST_DOCUMENT + 1))
    assert read_mapping(tmp_path, "d.json", problems) == {}
    assert "larger than" in problems[-1]
