"""The charts about one run, with their titles and descriptions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reverie.core.wording import count
from reverie.report.charts import Chart, Line, line_of, smoothed
from reverie.report.formatting import number, score, short_number, whole
from reverie.report.html_elements import figure, small_figure
from reverie.report.log_summaries import Evaluation
from reverie.report.run_data import RunData
from reverie.report.run_facts import shown_metrics


def learning_figures(run: RunData) -> str:
    """Evaluation and training return."""
    evaluation = _evaluation_figure(run) if run.evaluations.rows else ""
    return evaluation + (_training_figure(run) if run.episodes.returns.count else "")


def metric_figures(run: RunData) -> str:
    """The most important metrics as small multiples."""
    parts = []
    for name, series in shown_metrics(run):
        last = number(series.last)
        chart = Chart([line_of(series.curve())], f"{name}: last value {last}.", run.unit)
        parts.append(small_figure(name, chart, last))
    return f'<div class="multiples">{"".join(parts)}</div>' if parts else ""


def speed_figure(run: RunData) -> str:
    speed = run.machine.speed
    if not speed.count:
        return ""
    last = whole(speed.last)
    title = f"{run.unit.capitalize()} per second"
    chart = Chart([line_of(speed.curve(), 6)], f"{title}: last value {last}.", run.unit)
    return f'<div class="multiples speed">{small_figure(title, chart, last)}</div>'


def last_at_each_step(rows: Iterable[Evaluation]) -> list[Evaluation]:
    """The last evaluation of each step, in order. The final evaluation may be at the same step as the one before."""
    return [row for _, row in sorted({row.x: row for row in rows}.items())]


def _evaluation_figure(run: RunData) -> str:
    rows = last_at_each_step(run.evaluations.rows)
    names = ("x", "mean", "low", "high", "minimum", "maximum")
    x, mean, low, high, lowest, highest = (np.array([getattr(row, name) for row in rows]) for name in names)
    line = Line(x, mean, ((low, high), (lowest, highest)), has_points=True)
    note = "mean of the episodes with its 95 % interval (dark), range of the episodes (light)"
    note += f". Dashed: solved at {score(run.solved_at)}" if run.solved_at is not None else ""
    summary = _describe([("starts at", rows[0]), ("ends at", rows[-1]), ("best", run.evaluations.best)])
    chart = Chart([line], f"Evaluation return {summary}.", run.unit, "return", run.solved_at)
    return figure("Evaluation return", chart, note)


def _describe(rows: Iterable[tuple[str, Evaluation | None]]) -> str:
    return ", ".join(f"{word} {score(row.mean)} ({short_number(row.x)})" for word, row in rows if row is not None)


def _training_figure(run: RunData) -> str:
    returns = run.episodes.returns
    curve = returns.curve()
    low, high, last = map(score, (*returns.extremes(), curve.mean[-1]))
    description = f"Training return of {count(returns.count, 'episode')}, from {low} to {high}, in the end {last}."
    is_bucketed = len(curve) < returns.count
    note = "moving mean, with the range of neighbouring episodes" if is_bucketed else "moving mean, and every episode"
    return figure("Training return", Chart([smoothed(curve, 1)], description, y_unit="return"), note)
