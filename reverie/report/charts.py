"""Charts as SVG that goes into the page: text takes the page's fonts, colours follow its light or dark scheme.

Matplotlib draws with colours that stand for names (see ``COLOURS``); afterwards they are replaced by CSS variables.
No words of a run are drawn: titles stand beside the chart, in HTML.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.report.formatting import escape, short_number
from reverie.report.series import DRAWABLE, Curve

WIDE, NARROW, SMALL = (900, 300), (344, 250), (300, 150)
"""Width and height in CSS pixels."""
NUM_COLOURS = 8
SMOOTHING = 40
"""A moving mean covers this part of a curve."""
INK, GRID = "#a1b2f0", "#a1b2f1"
COLOURS = [f"#a1b2c{index}" for index in range(NUM_COLOURS)]
_VARIABLES = {INK: "var(--muted)", GRID: "var(--line)"} | {c: f"var(--c{i})" for i, c in enumerate(COLOURS)}
DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "axes.unicode_minus": True, "path.simplify": True}


@dataclass(frozen=True)
class Line:
    """A curve with a band around it, and a wider, lighter band around that."""

    x: Array
    y: Array
    bands: tuple[tuple[Array, Array], ...] = ()
    colour: int = 0
    has_points: bool = False
    faint: Array | None = None
    """Drawn thinly below the line, as the single values of which it is the mean."""


@dataclass(frozen=True)
class Chart:
    """What is drawn, and the words that stand for it where it cannot be seen."""

    lines: Sequence[Line]
    description: str
    x_unit: str = "env steps"
    y_unit: str = ""
    goal: float | None = None
    has_dashes: bool = False
    """Whether lines are told apart by more than their colour."""
    is_counted: bool = True
    """Whether x counts something, from 0 on; other numbers begin wherever they do."""


def smoothed(curve: Curve, colour: int) -> Line:
    """A moving mean over a bucketed curve, above the range of each bucket, or above the values themselves."""
    window = max(1, len(curve) // SMOOTHING)
    ones = np.convolve(np.ones(len(curve)), np.ones(window), "same")
    line = line_of(curve, colour)
    return replace(line, y=np.convolve(curve.mean, np.ones(window), "same") / ones, faint=curve.mean)


def legend_mark(colour: int) -> str:
    """A short piece of the line that a colour is drawn with."""
    dashes = DASHES[colour % len(DASHES)]
    pattern = "none" if isinstance(dashes, str) else " ".join(str(2 * length) for length in dashes[1])
    style = f"stroke:var(--c{colour % NUM_COLOURS});stroke-width:3;stroke-dasharray:{pattern}"
    return f'<svg viewBox="0 0 28 8" aria-hidden="true"><path d="M0 4H28" style="{style}"/></svg>'


def line_of(curve: Curve, colour: int = 0) -> Line:
    """A bucketed curve: the mean, and the extremes within each bucket as its band."""
    has_band = bool(np.any(curve.low < curve.high))
    return Line(curve.x, curve.mean, ((curve.low, curve.high),) if has_band else (), colour)


def draw(chart: Chart, size: tuple[int, int], key: str) -> str:
    """The chart as an SVG element; ``key`` keeps its inner names apart from those of other charts on the page."""
    import matplotlib

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": key}):
        axes = _empty_axes(*size)
        for line in chart.lines:
            dashes = DASHES[line.colour % len(DASHES)] if chart.has_dashes else "solid"
            _draw_line(axes, line, dashes, size[0] <= SMALL[0])
        if chart.goal is not None:
            axes.axhline(float(_drawable(np.array(chart.goal))), color=INK, linewidth=1, linestyle=(0, (3, 3)))
        _fit(axes, chart)
        text = io.StringIO()
        axes.figure.savefig(
            text, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _for_page(text.getvalue(), chart.description)


def _empty_axes(width: int, height: int) -> Any:
    """Axes without anything in them. They are made once for each size, which takes longer than drawing a chart."""
    from matplotlib.transforms import Bbox

    axes = _make_axes(width, height)
    for artist in (*axes.lines, *axes.collections, *axes.texts):
        artist.remove()
    axes.dataLim.set(Bbox.null())
    axes.ignore_existing_data_limits = True
    axes.autoscale(True)
    return axes


@lru_cache
def _make_axes(width: int, height: int) -> Any:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasSVG(figure)
    axes = figure.add_axes(_place(width, height))
    _dress(axes, width)
    return axes


def _place(width: int, height: int) -> tuple[float, float, float, float]:
    """Where the axes lie, in shares of the figure: the margins are the same in every size."""
    left, bottom, right, top = 46, 34, 12, 18
    return left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height


def _draw_line(axes: Any, line: Line, dashes: Any, is_small: bool) -> None:
    colour = COLOURS[line.colour % NUM_COLOURS]
    x = _drawable(line.x)
    for strength, (low, high) in zip((0.22, 0.12), line.bands, strict=False):
        if len(x) == 1:  # there is no area
            axes.vlines(x, _drawable(low), _drawable(high), color=colour, alpha=2 * strength, linewidth=6)
        axes.fill_between(x, _drawable(low), _drawable(high), color=colour, alpha=strength, linewidth=0)
    marker = "o" if line.has_points and len(x) <= 60 else "o" if len(x) == 1 else None
    if line.faint is not None:
        axes.plot(x, _drawable(line.faint), color=colour, linewidth=0.8, alpha=0.4)
    axes.plot(x, _drawable(line.y), color=colour, linewidth=1.4 if is_small else 1.8, linestyle=dashes, marker=marker,
              markersize=3.5 if is_small else 4.5, solid_joinstyle="round")  # fmt: skip


def _dress(axes: Any, width: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    is_small = width <= NARROW[0]
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, pad=5, labelsize=11)
    axes.margins(x=0.01, y=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(4 if is_small else 8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(3 if is_small else 5, steps=[1, 2, 2.5, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _fit(axes: Any, chart: Chart) -> None:
    """Limits and units."""
    _keep_flat_lines_in_the_middle(axes)
    if chart.is_counted:
        axes.set_xlim(left=0)
    right, transform = axes.get_position().x1, axes.figure.transFigure
    axes.text(right, 0.01, chart.x_unit, transform=transform, ha="right", va="bottom", fontsize=11, color=INK)
    if chart.y_unit:
        axes.text(0, 1.03, chart.y_unit, transform=axes.transAxes, ha="left", va="bottom", fontsize=11, color=INK)


def _keep_flat_lines_in_the_middle(axes: Any) -> None:
    low, high = axes.dataLim.intervaly
    if np.isfinite([low, high]).all() and high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(high) * 0.1 or 1.0
        axes.set_ylim(low - room, high + room)


def _drawable(values: Array) -> Array:
    return np.clip(values, -DRAWABLE, DRAWABLE)


def _for_page(svg: str, description: str) -> str:
    """Only what the page needs: no header, no styles for the whole page, no ids that would stand twice."""
    svg = svg[svg.index("<svg") :].strip()
    size = re.search(r'viewBox="([^"]*)"', svg)
    assert size is not None
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[A-Za-z0-9.]*_\d+"', "", svg)
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r' d="([^"]*)"', lambda found: f' d="{_shorten(found[1])}"', svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r">\s+<", "><", svg)
    head = f'<svg role="img" aria-label="{escape(description)}" viewBox="{size[1]}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return f"{head}<title>{escape(description)}</title>{svg[svg.index('>') + 1 :]}"


def _shorten(path: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", " ".join(path.split()))
