"""Figures for sinks, as images (H, W, 3) of uint8. Each has its own canvas; pyplot's global state is not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.foresight.measure import Calibration, Errors

LARGEST = 1e30
"""Larger numbers cannot be drawn."""
MOST_PANELS = 8
PANELS_IN_A_ROW = 4


def draw_curve(points: Array, title: str, unit: str, goal: float | None = None) -> Array:
    """Mean returns of evaluations with their intervals. ``points`` are rows of x, mean, low, high."""
    figure, (axes,) = _make_figure(1, (6.4, 3.6))
    places, mean, low, high = _drawable(points).T
    axes.fill_between(places, low, high, alpha=0.2, linewidth=0)
    axes.plot(places, mean, marker="o", markersize=4)
    if goal is not None:
        axes.axhline(goal, color="grey", linewidth=1, linestyle="dashed")
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.set(xlabel=unit, ylabel="evaluation return")
    return _picture(figure)


def draw_errors(errors: Mapping[str, Errors]) -> Array:
    """Errors of open-loop predictions by steps ahead, beside those of repeating the last row."""
    shown = dict(list(errors.items())[:MOST_PANELS])
    figure, panels = _make_figure(len(shown))
    for axes, (key, found) in zip(panels, shown.items(), strict=True):
        ahead = np.arange(1, len(found.counts) + 1)
        for name, values, style in (("model", found.model, "solid"), ("repeat last", found.repeat_last, "dashed")):
            axes.plot(ahead, np.where(found.counts > 0, _drawable(values), np.nan), label=name, linestyle=style)
        axes.set_title(key, fontsize=10, parse_math=False)
        axes.set(xlabel="steps ahead", ylabel="mean squared error")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].legend(frameon=False, fontsize=9)
    return _picture(figure)


def draw_calibrations(calibrations: Mapping[str, Calibration]) -> Array:
    """Real values over predicted ones, in bins of similar predictions. On the dashed line both are equal."""
    figure, panels = _make_figure(len(calibrations))
    for axes, (key, found) in zip(panels, calibrations.items(), strict=True):
        predicted, actual = _drawable(found.predicted), _drawable(found.actual)
        ends = [predicted.min(), predicted.max()]
        axes.plot(ends, ends, color="grey", linewidth=1, linestyle="dashed")
        axes.plot(predicted, actual, marker="o", markersize=4)
        axes.set_title(key, fontsize=10, parse_math=False)
        axes.set(xlabel="predicted", ylabel="real")
    return _picture(figure)


def _make_figure(count: int, size: tuple[float, float] = (3.2, 2.4)) -> tuple[Any, list[Any]]:
    """A figure with ``count`` axes in rows. ``size`` is that of each, in hundreds of pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(count, PANELS_IN_A_ROW)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * size[0], rows * size[1]), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    return figure, panels


def _picture(figure: Any) -> Array:
    figure.canvas.draw()
    picture: Array = np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
    return picture


def _drawable(values: Array) -> Array:
    drawable: Array = np.clip(values, -LARGEST, LARGEST)
    return drawable
