"""``metrics.csv``: a row per line of metrics.jsonl and a column per metric, for spreadsheets.

Metrics may appear late, such as those of evaluations. Rows then get longer than the title row, which is written anew
when the table has doubled and at the end. The table is made from metrics.jsonl at every start, so a resume never
doubles a stretch and a crash loses nothing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from typing import Any, TextIO

from reverie.core.config import ComponentConfig
from reverie.log.loggers import RunInfo
from reverie.log.sinks import read_jsonl


class CsvConfig(ComponentConfig):
    """A table of all metrics."""

    kind: str = "csv"


class CsvSink:
    """Writes ``metrics.csv`` into the run folder."""

    Config = CsvConfig

    def __init__(self, config: CsvConfig, run: RunInfo) -> None:
        self.path = run.folder / "metrics.csv"
        self.columns: dict[str, int] = {}
        self._titled = 0
        self._rows = self._rows_at_titles = 0
        self.path.write_text("")
        self._open()
        for record in read_jsonl(run.folder / "metrics.jsonl"):
            self.write("metrics", record)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind != "metrics":
            return
        for name in record:
            self.columns.setdefault(name, len(self.columns))
        if self._titled < len(self.columns) and self._rows >= 2 * self._rows_at_titles:
            self._write_titles()
        row: list[Any] = [""] * len(self.columns)
        for name, value in record.items():
            row[self.columns[name]] = value
        self._writer.writerow(row)
        self._rows += 1

    def close(self) -> None:
        if self._titled < len(self.columns):
            self._write_titles()
        self._file.close()

    def _write_titles(self) -> None:
        """The file once more, with all columns that there are; a crash leaves the old one or the new one."""
        self._file.close()
        old, width = self.path, len(self.columns)
        new = self.path.with_suffix(".csv.new")
        with old.open(newline="", encoding="utf-8") as source, new.open("w", newline="", encoding="utf-8") as target:
            rows = csv.reader(source)
            if self._titled:
                next(rows, None)
            writer = csv.writer(target)
            writer.writerow(self.columns)
            writer.writerows(row + [""] * (width - len(row)) for row in rows)
        os.replace(new, old)
        self._titled, self._rows_at_titles = width, self._rows
        self._open()

    def _open(self) -> None:
        self._file: TextIO = self.path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
