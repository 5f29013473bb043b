"""``metrics.csv`` for spreadsheets: a row per line of metrics.jsonl and a column per metric.

Some metrics appear late, such as those of evaluations, and make rows longer than the title row. The file is rewritten
with all titles when it has doubled in length, and at the end. Every start rebuilds it from metrics.jsonl, so a resume
repeats no rows and a crash loses none.
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
    """Writes all metrics to metrics.csv."""

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
        """Rewrite the file with all column titles. A crash leaves either the old file or the new one."""
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
