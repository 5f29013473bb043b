"""JSONL files: written, cut back, read with a line that a crash left unfinished."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.log.sinks import DamagedLog, JsonlSink, read_jsonl, truncate_logs


def test_records_go_to_the_file_of_their_kind(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    sink.write("metrics", {"env_steps": 1, "loss": 0.1})
    sink.write("scores", {"return": 5.0})
    sink.write("metrics", {"env_steps": 2, "loss": 1e-30})
    sink.close()
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"env_steps": 1, "loss": 0.1}, {"env_steps": 2, "loss": 1e-30}]
    assert read_jsonl(tmp_path / "scores.jsonl") == [{"return": 5.0}]
    assert read_jsonl(tmp_path / "machine.jsonl") == []


def test_a_table_is_written_as_its_records_are(tmp_path: Path) -> None:
    columns = {"env_steps": [7, 7], "return": [0.1, float("nan")], "log/100 %, {": [float("-inf"), 1e-30]}
    texts = []
    for name in ("table", "records"):
        (tmp_path / name).mkdir()
        sink = JsonlSink(tmp_path / name)
        if name == "table":
            sink.write_table("scores", columns)
        for values in zip(*columns.values(), strict=True) if name == "records" else ():
            sink.write("scores", dict(zip(columns, values, strict=True)))
        sink.close()
        texts.append((tmp_path / name / "scores.jsonl").read_text())
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == 2


def test_a_sink_adds_to_what_is_there(tmp_path: Path) -> None:
    for number in range(2):
        sink = JsonlSink(tmp_path)
        sink.write("metrics", {"number": number})
        sink.close()
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"number": 0}, {"number": 1}]


def test_files_are_truncate_logs_to_a_checkpoint(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    sink.write("metrics", {"number": 0})
    sizes = sink.sync()
    assert sizes["metrics"] == len((tmp_path / "metrics.jsonl").read_bytes()) > 0
    sink.write("metrics", {"number": 1})
    sink.write("scores", {"number": 2})
    sink.close()
    truncate_logs(tmp_path, sizes)
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"number": 0}]
    assert read_jsonl(tmp_path / "scores.jsonl") == []


def test_without_a_checkpoint_everything_goes(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    sink.write("metrics", {"number": 0})
    sink.close()
    truncate_logs(tmp_path, {})
    assert read_jsonl(tmp_path / "metrics.jsonl") == []
    truncate_logs(tmp_path / "nowhere", {})


def test_a_file_that_is_too_short_is_not_filled_up(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"number": 0}\n')
    truncate_logs(tmp_path, {"metrics": 1000})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"number": 0}\n'


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"number": 0}\n{"number": 1}\n{"numb')
    assert read_jsonl(path) == [{"number": 0}, {"number": 1}]
    path.write_text('{"number": 0}\n{"number": 1}')
    assert read_jsonl(path) == [{"number": 0}]
    assert read_jsonl(tmp_path / "missing.jsonl") == []


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"number": 0}\n{"number"\n')
    with pytest.raises(DamagedLog, match=r"metrics\.jsonl cannot be read: line 2 is damaged"):
        read_jsonl(path)
    path.write_text("[1]\n")
    with pytest.raises(DamagedLog, match="not JSON objects"):
        read_jsonl(path)
