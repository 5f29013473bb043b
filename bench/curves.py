"""Learning curves of a preset, one per seed, for the docs: ``docs/images/curves/<spec>.svg``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "images" / "curves"
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "reverie", "axes.spines.top": False, "axes.spines.right": False}


def read_curve(run: Path, key: str = "return_mean") -> tuple[list[int], list[float]]:
    """Env steps and mean returns, or another metric, of a run's evaluations."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    name = f"evaluate/{key}"
    points = [(line["env_steps"], line[name]) for line in lines if name in line]
    return [steps for steps, _ in points], [score for _, score in points]


def draw_curves(spec: str, runs: Sequence[Path], goal: float, key: str = "return_mean") -> Path | None:
    """Evaluation curves with a dashed line at the goal. None if the runs were never evaluated."""
    curves = [read_curve(run, key) for run in runs]
    label = "return" if key == "return_mean" else key.removeprefix("log/")
    return draw(spec, curves, ("env steps", label), goal) if any(steps for steps, _ in curves) else None


def draw(spec: str, curves: Sequence[tuple[Any, Any]], labels: tuple[str, str], goal: float | None = None) -> Path:
    """One line a seed; over the logarithm where what is drawn is to be straight there, which has no goal."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(6, 2.6), layout="constrained")
        for number, (steps, scores) in enumerate(curves, 1):
            axes.plot(steps, scores, linewidth=1.6, label=f"seed {number}")
        if goal is None:
            axes.set_xscale("log")
        else:
            axes.axhline(goal, color="0.5", linestyle="--", linewidth=1, label="to reach")
        axes.set(title=spec, xlabel=labels[0], ylabel=labels[1])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(frameon=False, fontsize=8)
        path = FOLDER / f"{re.sub('[^A-Za-z0-9]+', '-', spec).strip('-')}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    return path
