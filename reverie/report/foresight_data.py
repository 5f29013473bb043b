"""Reads the newest foresight of a run from its files: errors by steps ahead, calibration, pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.report.safe_files import as_number, read_bytes, read_mapping
from reverie.store.run_folder import FORESIGHT, FORESIGHT_NUMBERS

LARGEST_FILE = 6 << 20
MOST_KEYS = 8
MARKS = {".mp4": ("video/mp4", 4, b"ftyp"), ".gif": ("image/gif", 0, b"GIF8"), ".png": ("image/png", 1, b"PNG")}
"""By file ending: media type, and the bytes that the file must contain at an offset."""


@dataclass(frozen=True)
class Curves:
    """Squared errors by steps ahead."""

    key: str
    model: list[float]
    repeat_last: list[float]


@dataclass(frozen=True)
class Calibration:
    """Mean predictions and mean actual values over bins of similar predictions, and their difference."""

    key: str
    error: float
    bias: float
    predicted: list[float]
    actual: list[float]


@dataclass(frozen=True)
class Foresight:
    """The newest foresight of a run. ``pictures`` are pairs of title and data URL."""

    x: float
    """Position on the run's axis."""
    curves: list[Curves]
    calibrations: list[Calibration]
    pictures: list[tuple[str, str]]
    reconstructions: dict[str, float]
    """By key: mean squared error of reconstructions."""


def read_foresight(run: Path, problems: list[str]) -> Foresight | None:
    """The newest foresight of a run, or None."""
    try:
        taken = sorted((int(path.name), path.name) for path in (run / FORESIGHT).iterdir() if _is_number(path.name))
    except OSError:
        return None
    if not taken:
        return None
    place = f"{FORESIGHT}/{taken[-1][1]}"
    numbers = read_mapping(run, f"{place}/{FORESIGHT_NUMBERS}", problems)
    if not numbers:
        return None
    curves = [
        found
        for key, values in list(_mapping(numbers.get("open_loop")).items())[:MOST_KEYS]
        if (found := _curves(key, values)) is not None
    ]
    metrics = _mapping(numbers.get("metrics"))
    calibrations = _calibrations(_mapping(numbers.get("calibration")), metrics)
    errors = {found.key: as_number(metrics.get(f"reconstruction/{found.key}/mse")) for found in curves}
    shown = {key: error for key, error in errors.items() if error is not None}
    return Foresight(float(taken[-1][0]), curves, calibrations, _pictures(run, place, problems), shown)


def _curves(key: str, values: Any) -> Curves | None:
    model, last = _pair(values, "mse", "repeat_last_mse")
    return Curves(key, model, last) if model else None


def _calibrations(bins: dict[str, Any], metrics: dict[str, Any]) -> list[Calibration]:
    found = []
    for key in ("reward", "continuation"):
        error, bias = (as_number(metrics.get(f"calibration/{key}_{name}")) for name in ("error", "bias"))
        if error is not None and bias is not None:
            found.append(Calibration(key, error, bias, *_pair(bins.get(key), "predicted", "actual")))
    return found


def _pictures(run: Path, place: str, problems: list[str]) -> list[tuple[str, str]]:
    found = []
    for path in sorted((run / place).iterdir()):
        mark = MARKS.get(path.suffix)
        if mark is None or path.name.startswith("."):
            continue
        data = read_bytes(run, f"{place}/{path.name}", problems, LARGEST_FILE)
        kind, start, bytes_there = mark
        if data is not None and data[start : start + len(bytes_there)] == bytes_there:
            found.append((_title(path.stem), f"data:{kind};base64,{base64.b64encode(data).decode()}"))
    return found[: 2 * MOST_KEYS]


def _title(stem: str) -> str:
    name, _, key = stem.rpartition("-obs")
    words = {"open-loop": "Truth, model, error", "reconstruction": "Truth above its reconstruction"}
    return words.get(name, stem) + (f": {key.strip('-')}" if key.strip("-") else "")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pair(values: Any, *names: str) -> tuple[list[float], list[float]]:
    """Two lists of numbers of equal length. Empty ones if the values are anything else."""
    entries = _mapping(values)
    one, other = (_numbers(entries.get(name)) for name in names)
    return (one, other) if len(one) == len(other) else ([], [])


def _numbers(values: Any) -> list[float]:
    """A list of finite numbers. Empty if the value is anything else."""
    entries: Sequence[Any] = values if isinstance(values, list) else ()
    found = [as_number(entry) for entry in entries[:1000]]
    return [] if None in found else [entry for entry in found if entry is not None]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 16
