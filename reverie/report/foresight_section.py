"""The section about a world model: the newest foresight of the run as videos, pictures, charts and numbers."""

from __future__ import annotations

import numpy as np

from reverie.core.wording import count
from reverie.report.charts import Chart, Line
from reverie.report.foresight_data import Calibration, Curves, Foresight
from reverie.report.formatting import escape, number, whole
from reverie.report.html_elements import section, small_figure, table

ERROR_HEAD = ("predicted", "steps", "error at the first", "error at the last", "error of repeating", "ratio")
CALIBRATION_HEAD = ("predicted", "calibration error", "bias")


def foresight_section(look: Foresight | None, unit: str = "env steps", judged: str = "") -> str:
    """The section, with ``judged``, the verdict on the model, at its top. Empty without a world model."""
    if look is None:
        return ""
    html = "".join(_picture(title, address) for title, address in look.pictures)
    html = f'<div class="videos">{html}</div>' if html else ""
    figures = [_error_figure(curves) for curves in look.curves]
    figures += [_calibration_figure(found) for found in look.calibrations if found.predicted]
    html += f'<div class="multiples">{"".join(figures)}</div>' if figures else ""
    if look.calibrations:
        html += table(CALIBRATION_HEAD, calibration_rows(look), (1, 2), "Calibration")
    html = f"<p><b>{escape(judged)}</b></p>{html}" if judged else html
    note = f"{about(look, unit)} Dashed: the error of repeating the last row, and perfect calibration."
    return section("World model", html, note)


def about(look: Foresight, unit: str) -> str:
    """Which episodes the model was tested on."""
    return f"Measured on new episodes, at {whole(look.x)} {unit}."


def error_rows(look: Foresight) -> list[list[str]]:
    """By key: the model's error at the first and the last step of its dreams, the error of repeating the last row, and
    the ratio of the two."""
    return [_error_row(curves) for curves in look.curves]


def calibration_rows(look: Foresight) -> list[list[str]]:
    return [[found.key, number(found.error), number(found.bias)] for found in look.calibrations]


def _error_figure(curves: Curves) -> str:
    x = np.arange(1, len(curves.model) + 1, dtype=float)
    lines = [Line(x, np.array(curves.model), colour=0), Line(x, np.array(curves.repeat_last), colour=1)]
    last = number(curves.model[-1])
    description = (
        f"{curves.key}: error of {last} after {count(len(x), 'step')}, {number(curves.repeat_last[-1])} by repeating."
    )
    chart = Chart(lines, description, "steps ahead", "mean squared error", has_dashes=True)
    return small_figure(curves.key, chart, f"open loop, {last} at the end")


def _calibration_figure(found: Calibration) -> str:
    x = np.array(found.predicted)
    ends = np.array([x.min(), x.max()])
    lines = [Line(x, np.array(found.actual), has_points=True, colour=0), Line(ends, ends, colour=1)]
    description = f"{found.key}: mean calibration error {number(found.error)}."
    chart = Chart(lines, description, "predicted", "actual", has_dashes=True, is_counted=False)
    return small_figure(f"{found.key}, calibration", chart, f"mean error {number(found.error)}")


def _error_row(curves: Curves) -> list[str]:
    last, repeating = curves.model[-1], curves.repeat_last[-1]
    ratio = last / repeating if repeating else None
    return [curves.key, whole(len(curves.model)), *map(number, (curves.model[0], last, repeating, ratio))]


def _picture(title: str, address: str) -> str:
    video = f'<video controls muted loop playsinline preload="metadata" src="{address}"></video>'
    image = f'<img alt="{escape(title)}" src="{address}" style="max-width:100%;image-rendering:pixelated">'
    shown = video if address.startswith("data:video/") else image
    return f"<figure><figcaption><b>{escape(title)}</b></figcaption>{shown}</figure>"
