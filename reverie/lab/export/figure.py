"""Learning curves for a paper, as PDF or PNG: one panel per env, one line per group, bands over seeds."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from reverie.core.errors import RunError
from reverie.report.groups import Group, compare
from reverie.report.run_data import RunData

PANEL_INCHES = (3.4, 2.5)
PANELS_IN_A_ROW = 3
MOST_PANELS, MOST_LINES = 12, 10
DOTS_PER_INCH = 200
STYLE: Any = {"pdf.fonttype": 42, "font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
"""Type 42 embeds whole fonts, which most venues ask for."""


def draw_curves(runs: Sequence[RunData], form: str) -> bytes:
    """The mean evaluation over seeds with its 95 % bootstrap interval. ``form`` is pdf or png."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    envs = compare(runs).envs
    if not any(group.curve() for groups in envs.values() for group in groups):
        raise RunError("None of these runs has been evaluated, so there are no curves.", "Let them train longer.")
    if len(envs) > MOST_PANELS or max(map(len, envs.values())) > MOST_LINES:
        fix = "Name fewer runs, for example with env=CartPole*."
        raise RunError(f"A figure has at most {MOST_PANELS} envs with {MOST_LINES} groups each.", fix)
    columns = min(len(envs), PANELS_IN_A_ROW)
    rows = -(-len(envs) // columns)
    with rc_context(STYLE):
        figure = Figure((PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), layout="constrained")
        for number, (env, groups) in enumerate(envs.items(), start=1):
            _draw_env(figure.add_subplot(rows, columns, number), env, groups)
        file = io.BytesIO()
        metadata: dict[str, Any] = {"CreationDate": None} if form == "pdf" else {"Software": None}
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()


def _draw_env(axes: Any, env: str, groups: Sequence[Group]) -> None:
    for group in groups:
        curve = group.curve()
        if curve is None:
            continue
        label = f"{group.label} ({curve.seeds} seeds)" if curve.seeds > 1 else f"{group.label} (single run)"
        (line,) = axes.plot(
            curve.x, curve.mean, linewidth=1.2, marker="o" if len(curve.x) == 1 else None, markersize=3,
            label=label.replace("$", r"\$"),
        )  # fmt: skip
        if curve.seeds > 1:
            axes.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_title(env, fontsize=9, parse_math=False)
    axes.set(xlabel=groups[0].runs[0].unit, ylabel="evaluation return")
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    axes.legend(frameon=False, fontsize=7)
