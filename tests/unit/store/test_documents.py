"""Reading what anyone may have written: bounded, regular files only, explained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reverie.store import documents
from reverie.store.documents import DEEPEST, Unreadable, parse_json, read_bytes, read_json, read_lines, read_text


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, -2.5, "\u00fc", null, true], "b": {"c": NaN}}')
    value = read_json(tmp_path / "a.json")
    assert value["a"] == [1, -2.5, "\u00fc", None, True]
    assert read_text(tmp_path / "a.json").startswith('{"a"')
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "b.json")


def test_links_are_followed_only_where_the_user_has_put_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(Unreadable, match="link"):
        read_json(tmp_path / "link.json")
    assert read_text(tmp_path / "link.json", follow_links=True) == "{}"


def test_pipes_folders_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(Unreadable, match="not a regular file"):
            read_bytes(path)


def test_size_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", limit=5) == b"12345"
    with pytest.raises(Unreadable, match="larger than"):
        read_bytes(tmp_path / "a", limit=4)


def test_binary_files_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"seed: \x80\x04")
    with pytest.raises(Unreadable, match=r"not UTF-8 text, perhaps a binary file \(byte 7 is 0x80\)"):
        read_text(tmp_path / "a.yaml")
    with pytest.raises(Unreadable, match="not UTF-8 text"):
        parse_json(b"\x80")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested too deeply"),
        (b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1), "nested too deeply"),
        (b"9" * 5000, "a number with 5,000 digits"),
        (b"{", "Expecting"),
    ],
)
def test_what_no_file_of_ours_has_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(data)


def test_what_our_files_have_is_accepted() -> None:
    assert parse_json(b"[" * DEEPEST + b"]" * DEEPEST) is not None
    assert parse_json(str(2**128).encode()) == 2**128
    assert parse_json(b"[" + b"[]," * 1000 + b"[]]")[999] == []


def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n{"a"')
    assert [line["a"] for line in read_lines(path)] == [1, 2]
    path.write_text('{"a": 1}\n{"a"\n')
    with pytest.raises(Unreadable, match="line 2 is damaged"):
        list(read_lines(path))
    monkeypatch.setattr(documents, "LONGEST_LINE", 10)
    path.write_text('{"a": 1}\n{"a": "long"}\n')
    with pytest.raises(Unreadable, match="line 2 is longer"):
        list(read_lines(path))


def test_names_that_no_file_can_have_are_no_files(tmp_path: Path) -> None:
    assert not documents.is_file(tmp_path / ("x" * 5000))
