"""The section about a world model: the newest look of the run, as films, pictures and errors by steps ahead."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reverie.runs.folder import FORESIGHT, FORESIGHT_NUMBERS
from reverie.runs.report.charts import Chart, Line
from reverie.runs.report.elements import section, small_figure, table
from reverie.runs.report.files import as_number, read_bytes, read_mapping
from reverie.runs.report.wording import escape, number, whole

LARGEST_FILE = 6 << 20
MOST_KEYS = 8
MARKS = {".mp4": ("video/mp4", 4, b"ftyp"), ".gif": ("image/gif", 0, b"GIF8"), ".png": ("image/png", 1, b"PNG")}
"""The kind of a file, and the bytes that it must have at a place."""


@dataclass(frozen=True)
class Curves:
    """Squared errors by steps ahead."""

    key: str
    model: list[float]
    repeat_last: list[float]


@dataclass(frozen=True)
class Foresight:
    """What the newest look found, and its pictures by title, as addresses that hold them."""

    env_steps: float
    curves: list[Curves]
    calibration: list[tuple[str, float, float]]
    pictures: list[tuple[str, str]]


def read_foresight(run: Path, problems: list[str]) -> Foresight | None:
    """The newest look of a run; None if there is none."""
    try:
        taken = sorted((int(path.name), path.name) for path in (run / FORESIGHT).iterdir() if _is_number(path.name))
    except OSError:
        return None
    if not taken:
        return None
    place = f"{FORESIGHT}/{taken[-1][1]}"
    told = read_mapping(run, f"{place}/{FORESIGHT_NUMBERS}", problems)
    if not told:
        return None
    curves = [found for key, values in _items(told.get("open_loop")) if (found := _curves(key, values)) is not None]
    metrics = told.get("metrics")
    return Foresight(
        float(taken[-1][0]), curves, _calibration(metrics if isinstance(metrics, dict) else {}),
        _pictures(run, place, problems),
    )  # fmt: skip


def foresight_section(look: Foresight | None) -> str:
    if look is None:
        return ""
    html = "".join(_picture(title, address) for title, address in look.pictures)
    html = f'<div class="films">{html}</div>' if html else ""
    figures = "".join(_figure(curves) for curves in look.curves)
    html += f'<div class="multiples">{figures}</div>' if figures else ""
    if look.calibration:
        rows = [[key, number(error), number(bias)] for key, error, bias in look.calibration]
        html += table(["predicted", "mean error over alike predictions", "mean error"], rows, (1, 2), "Calibration")
    note = f"Episodes that were never learnt from, at {whole(look.env_steps)} env steps; dashed: what repeating gives."
    return section("World model", html, note)


def _figure(curves: Curves) -> str:
    x = np.arange(1, len(curves.model) + 1, dtype=float)
    lines = [Line(x, np.array(curves.model), colour=0), Line(x, np.array(curves.repeat_last), colour=1)]
    last = number(curves.model[-1])
    told = f"{curves.key}: error of {last} after {len(x)} steps, {number(curves.repeat_last[-1])} by repeating."
    chart = Chart(lines, told, "steps ahead", "mean squared error", has_dashes=True)
    return small_figure(curves.key, chart, f"open loop, {last} at the end")


def _picture(title: str, address: str) -> str:
    film = f'<video controls muted loop playsinline preload="metadata" src="{address}"></video>'
    image = f'<img alt="{escape(title)}" src="{address}" style="max-width:100%;image-rendering:pixelated">'
    shown = film if address.startswith("data:video/") else image
    return f"<figure><figcaption><b>{escape(title)}</b></figcaption>{shown}</figure>"


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


def _curves(key: str, values: Any) -> Curves | None:
    if not isinstance(values, dict):
        return None
    model, last = _numbers(values.get("mse")), _numbers(values.get("repeat_last_mse"))
    return Curves(key, model, last) if model and len(model) == len(last) else None


def _calibration(metrics: dict[str, Any]) -> list[tuple[str, float, float]]:
    found = []
    for key in ("reward", "continuation"):
        error, bias = (as_number(metrics.get(f"calibration/{key}_{name}")) for name in ("error", "bias"))
        if error is not None and bias is not None:
            found.append((key, error, bias))
    return found


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items())[:MOST_KEYS] if isinstance(value, dict) else []


def _numbers(values: Any) -> list[float]:
    """A list of finite numbers; empty if it is none."""
    entries: Sequence[Any] = values if isinstance(values, list) else ()
    found = [as_number(entry) for entry in entries[:1000]]
    return [] if None in found else [entry for entry in found if entry is not None]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 16
