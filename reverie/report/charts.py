"""Charts as inline SVG: text uses the page's fonts, and colours adapt to its light or dark scheme.

Matplotlib draws with placeholder colours (see ``COLOURS``), which are then replaced by CSS variables. Text from a run
is never drawn: titles are HTML beside the chart.
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
"""A moving mean covers 1 / SMOOTHING of a curve."""
INK, GRID = "#a1b2f0", "#a1b2f1"
COLOURS = [f"#a1b2c{index}" for index in range(NUM_COLOURS)]
_VARIABLES = {INK: "var(--muted)", GRID: "var(--line)"} | {c: f"var(--c{i})" for i, c in enumerate(COLOURS)}
DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "axes.unicode_minus": True, "path.simplify": True}


@dataclass(frozen=True)
class Line:
    """A curve with up to two bands around it, the second one lighter."""

    x: Array
    y: Array
    bands: tuple[tuple[Array, Array], ...] = ()
    colour: int = 0
    has_points: bool = False
    faint: Array | None = None
    """Values drawn as a thin line, of which ``y`` is the moving mean."""


@dataclass(frozen=True)
class Chart:
    """The lines of a chart, and a description for screen readers."""

    lines: Sequence[Line]
    description: str
    x_unit: str = "env steps"
    y_unit: str = ""
    goal: float | None = None
    has_dashes: bool = False
    """Whether lines also differ by their dashes."""
    is_counted: bool = True
    """Whether the x axis starts at 0."""


def smoothed(curve: Curve, colour: int) -> Line:
    """The moving mean of a bucketed curve, with the means of the buckets as a thin line."""
    window = max(1, len(curve) // SMOOTHING)
    ones = np.convolve(np.ones(len(curve)), np.ones(window), "same")
    line = line_of(curve, colour)
    return replace(line, y=np.convolve(curve.mean, np.ones(window), "same") / ones, faint=curve.mean)


def legend_mark(colour: int) -> str:
    """A short sample of a line, for the legend."""
    dashes = DASHES[colour % len(DASHES)]
    pattern = "none" if isinstance(dashes, str) else " ".join(str(2 * length) for length in dashes[1])
    style = f"stroke:var(--c{colour % NUM_COLOURS});stroke-width:3;stroke-dasharray:{pattern}"
    return f'<svg viewBox="0 0 28 8" aria-hidden="true"><path d="M0 4H28" style="{style}"/></svg>'


def line_of(curve: Curve, colour: int = 0) -> Line:
    """The means of a bucketed curve, with the range of each bucket as a band."""
    has_band = bool(np.any(curve.low < curve.high))
    return Line(curve.x, curve.mean, ((curve.low, curve.high),) if has_band else (), colour)


def draw(chart: Chart, size: tuple[int, int], key: str) -> str:
    """The chart as an SVG element. ``key`` makes its ids unique on the page."""
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
    """Empty axes, reused for all charts of a size: making them takes longer than drawing a chart."""
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
    axes = figure.add_axes(_axes_rectangle(width, height))
    _style_axes(axes, width)
    return axes


def _axes_rectangle(width: int, height: int) -> tuple[float, float, float, float]:
    """The axes' rectangle as fractions of the figure. The margins have the same size in pixels everywhere."""
    left, bottom, right, top = 46, 34, 12, 18
    return left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height


def _draw_line(axes: Any, line: Line, dashes: Any, is_small: bool) -> None:
    colour = COLOURS[line.colour % NUM_COLOURS]
    x = _drawable(line.x)
    for strength, (low, high) in zip((0.22, 0.12), line.bands, strict=False):
        if len(x) == 1:  # fill_between would draw nothing
            axes.vlines(x, _drawable(low), _drawable(high), color=colour, alpha=2 * strength, linewidth=6)
        axes.fill_between(x, _drawable(low), _drawable(high), color=colour, alpha=strength, linewidth=0)
    marker = "o" if line.has_points and len(x) <= 60 else "o" if len(x) == 1 else None
    if line.faint is not None:
        axes.plot(x, _drawable(line.faint), color=colour, linewidth=0.8, alpha=0.4)
    axes.plot(x, _drawable(line.y), color=colour, linewidth=1.4 if is_small else 1.8, linestyle=dashes, marker=marker,
              markersize=3.5 if is_small else 4.5, solid_joinstyle="round")  # fmt: skip


def _style_axes(axes: Any, width: int) -> None:
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
    """Set the limits and the units of the axes."""
    _centre_flat_lines(axes)
    if chart.is_counted:
        axes.set_xlim(left=0)
    right, transform = axes.get_position().x1, axes.figure.transFigure
    axes.text(right, 0.01, chart.x_unit, transform=transform, ha="right", va="bottom", fontsize=11, color=INK)
    if chart.y_unit:
        axes.text(0, 1.03, chart.y_unit, transform=axes.transAxes, ha="left", va="bottom", fontsize=11, color=INK)


def _centre_flat_lines(axes: Any) -> None:
    low, high = axes.dataLim.intervaly
    if np.isfinite([low, high]).all() and high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(high) * 0.1 or 1.0
        axes.set_ylim(low - room, high + room)


def _drawable(values: Array) -> Array:
    return np.clip(values, -DRAWABLE, DRAWABLE)


def _for_page(svg: str, description: str) -> str:
    """Remove what a page must not contain: the XML header, global styles, and ids that would repeat."""
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
