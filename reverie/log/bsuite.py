"""The file that BSuite's own analysis reads: ``bsuite_id_-_catch-0.csv``, one line for episodes 1, 2, 3 ... 10, 12, 14.

It describes the episodes of training in the order in which they ended. Every start rebuilds it from scores.jsonl, so a
resumed run writes the file of an uninterrupted one. Copy the files of several runs into one folder and read them with
``bsuite.logging.csv_load.load_bsuite(folder)``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.log.loggers import RunInfo
from reverie.log.sinks import read_jsonl

_PREFIX = "bsuite/"
_FIRST_DIGITS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
"""Episodes that are written, times any power of ten: about evenly spaced on a logarithmic axis."""
_LARGEST = ("best_episode",)
"""Measures whose largest value counts. The others are summed over episodes."""


class BSuiteConfig(ComponentConfig):
    """Writes BSuite's own results file."""

    kind: str = "bsuite"
    folder: str = ""
    """Folder for the file. Empty: the folder of the run."""


class BSuiteSink:
    """Writes one line for some of the training episodes."""

    Config = BSuiteConfig

    def __init__(self, config: BSuiteConfig, run: RunInfo) -> None:
        folder = Path(config.folder).expanduser() if config.folder else run.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"bsuite_id_-_{_setting(run).replace('/', '-')}.csv"
        self._totals: dict[str, float] = {"steps": 0, "episode": 0, "total_return": 0.0}
        self._file: TextIO = self.path.open("w", newline="", encoding="utf-8")
        self._writer: csv.DictWriter[str] | None = None
        for record in read_jsonl(run.folder / "scores.jsonl"):
            self.write("scores", record)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind != "scores":
            return
        length, value = int(record["length"]), float(record["return"])
        self._add({"steps": length, "episode": 1, "total_return": value})
        measures = {key.removeprefix("log/"): float(record[key]) for key in record if key.startswith("log/")}
        self._add(measures)
        if is_written(int(self._totals["episode"])):
            self._write_line({**self._totals, "episode_len": length, "episode_return": value})

    def _add(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            before = self._totals.get(key, 0)
            self._totals[key] = max(before, value) if key in _LARGEST else before + value

    def _write_line(self, line: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(line))
            self._writer.writeheader()
        self._writer.writerow(line)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def is_written(episode: int) -> bool:
    """Whether BSuite's analysis expects a line for this episode."""
    scale = 10 ** (len(str(episode)) - 1)
    return any(10 * episode == digits * scale for digits in _FIRST_DIGITS)


def _setting(run: RunInfo) -> str:
    """``catch/0`` of ``bsuite/catch/0``."""
    env_id = str(run.config.get("env", {}).get("id", ""))
    if not env_id.startswith(_PREFIX):
        raise ConfigError(
            f"The logger bsuite is for envs of BSuite, not for '{env_id}'.", "Remove it from log.loggers."
        )
    return env_id.removeprefix(_PREFIX)
