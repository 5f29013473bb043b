"""Learning curves of this lab next to another implementation's, on the same task, sizes, batch, ratio and budget.

``python -m bench.side_by_side TITLE --ours RUN... --peer FILE... --peer-name NAME --out FIGURE.svg`` reads the training
episodes of finished runs (``scores.jsonl``) and of the peer: one file per seed, each line ``{"env_steps": N, "return":
R}``. Both sides show the same thing, the returns of the exploring policy, so neither has an advantage by evaluation.
Thin lines are seeds, thick ones their mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.curves import SETTINGS
from reverie.core.types import Array

WINDOWS = 30
"""Points of a curve: each is the mean of the episodes that ended in a thirtieth of the budget."""


def read_episodes(path: Path) -> tuple[Array, Array]:
    """Env steps and returns of all episodes of one seed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return np.array([line["env_steps"] for line in lines]), np.array([line["return"] for line in lines])


def mean_by_window(steps: Array, returns: Array, budget: int) -> Array:
    """Mean return per window of the budget (WINDOWS,). NaN where no episode ended."""
    window = np.minimum(steps * WINDOWS // budget, WINDOWS - 1)
    counts = np.bincount(window, minlength=WINDOWS)
    sums = np.bincount(window, returns, WINDOWS)
    return np.divide(sums, counts, out=np.full(WINDOWS, np.nan), where=counts > 0)


def summarise(name: str, curves: Array) -> str:
    """One line: the mean over seeds of the last tenth of the budget, with the lowest and the highest seed."""
    last = np.nanmean(curves[:, -WINDOWS // 10 :], axis=1)
    return f"{name}: {last.mean():.1f} ({last.min():.1f} to {last.max():.1f}) in the last tenth; seeds: {len(curves)}"


def draw(title: str, budget: int, sides: dict[str, Array], path: Path) -> None:
    """One colour per side of ``sides`` (name to curves (seeds, WINDOWS))."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    steps = (np.arange(WINDOWS) + 0.5) * budget / WINDOWS
    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(6, 2.6), layout="constrained")
        for number, (name, curves) in enumerate(sides.items()):
            axes.plot(steps, curves.T, color=f"C{number}", linewidth=0.7, alpha=0.5)
            axes.plot(steps, np.nanmean(curves, axis=0), color=f"C{number}", linewidth=2, label=name)
        axes.set(title=title, xlabel="env steps", ylabel="return")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def load(paths: Sequence[Path], budget: int) -> Array:
    return np.stack([mean_by_window(*read_episodes(path), budget) for path in paths])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("title")
    parser.add_argument("--ours", type=Path, nargs="+", required=True, help="run folders")
    parser.add_argument("--peer", type=Path, nargs="+", required=True, help="JSONL files, one per seed")
    parser.add_argument("--peer-name", required=True)
    parser.add_argument("--budget", type=int, required=True, help="env steps")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    ours = load([run / "scores.jsonl" for run in given.ours], given.budget)
    sides = {"Reverie": ours, given.peer_name: load(given.peer, given.budget)}
    draw(given.title, given.budget, sides, given.out)
    print("\n".join(summarise(name, curves) for name, curves in sides.items()))


if __name__ == "__main__":
    main()
