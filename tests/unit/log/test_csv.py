"""metrics.csv: columns that come late, resumes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from reverie.log.csv import CsvConfig, CsvSink
from reverie.log.loggers import RunInfo


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_that_come_late(tmp_path: Path) -> None:
    sink = CsvSink(CsvConfig(), RunInfo(tmp_path))
    sink.write("metrics", {"env_steps": 1, "loss": 0.5, "phase": "with, comma"})
    sink.write("scores", {"env_steps": 1, "return": 3.0})
    for steps in range(2, 7):
        sink.write("metrics", {"env_steps": steps, f"late/{steps}": 1.0})
    sink.close()
    rows = read(tmp_path)
    assert [row["env_steps"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert rows[0]["phase"] == "with, comma"
    assert (rows[0]["late/6"], rows[5]["late/6"], rows[5]["loss"]) == ("", "1.0", "")
    assert None not in rows[5]
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert {len(row) for row in csv.reader(file)} == {8}


def test_titles_are_not_written_anew_for_every_new_column(tmp_path: Path) -> None:
    sink = CsvSink(CsvConfig(), RunInfo(tmp_path))
    rewritten = 0
    write_titles = sink._write_titles

    def count() -> None:
        nonlocal rewritten
        rewritten += 1
        write_titles()

    sink._write_titles = count  # type: ignore[method-assign]
    for steps in range(200):
        sink.write("metrics", {"env_steps": steps, f"late/{steps}": 1.0})
    sink.close()
    assert rewritten <= 12
    assert len(read(tmp_path)[0]) == 201


def test_a_start_takes_what_metrics_jsonl_holds(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("from,before\n1,2\n")
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"env_steps": 1, "loss": 0.25}) + "\n")
    sink = CsvSink(CsvConfig(), RunInfo(tmp_path, env_steps=1))
    sink.write("metrics", {"env_steps": 2, "loss": 0.125})
    sink.close()
    assert read(tmp_path) == [{"env_steps": "1", "loss": "0.25"}, {"env_steps": "2", "loss": "0.125"}]
