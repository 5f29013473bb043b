"""The reports as Markdown, for terminals, notes and pull requests. Curves become a line of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from reverie.core.types import Array
from reverie.core.wording import count
from reverie.report.efficiency import HEAD as EFFICIENCY_HEAD
from reverie.report.efficiency import efficiency
from reverie.report.fairness import warnings
from reverie.report.foresight_data import Foresight
from reverie.report.foresight_section import CALIBRATION_HEAD, ERROR_HEAD, about, calibration_rows, error_rows
from reverie.report.formatting import duration, escape_markdown, number, percent, score, title, whole
from reverie.report.groups import Comparison, different_settings
from reverie.report.log_summaries import Alert
from reverie.report.run_data import RunData
from reverie.report.run_facts import PART_NAMES, machine_facts, score_lines, shown_metrics, time_parts
from reverie.report.score_tables import (
    NORMALISED_HEAD,
    SCORE_HEAD,
    improvement_rows,
    normalised_rows,
    score_rows,
    shared_rows,
)
from reverie.report.settings import show_value
from reverie.report.verdicts import verdicts
from reverie.report.world_model_verdict import verdict

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 40


def run_text(run: RunData) -> str:
    """The report about one run."""
    text = escape_markdown
    head = f"# {text(run.env)} · {text(title(run.algorithm))} · seed {text(run.seed)}\n\n"
    head += f"**{text(run.state)}** after {run.amount} · {text(run.name)}\n\n"
    parts = [
        head + _table(["score", ""], [[label, value] for value, label in score_lines(run)]),
        _problems(run.problems),
        _section("Alerts", _list(_alert(alert, run.unit) for alert in run.alerts)),
        _section("Learning", _learning(run)),
        _section("World model", _foresight(run, run.foresight) if run.foresight else ""),
        _section("Metrics", _table(["metric", "last", "lowest", "highest"], [
            [name, number(series.last), *map(number, series.extremes())] for name, series in shown_metrics(run)])),
        _section("Time", _table(["part", "time", "percent"], _time_rows(run))),
        _section("Settings that differ from the preset", _table(["setting", "preset", "this run", "set by"], [
            [d.key, show_value(d.before), show_value(d.value), d.source] for d in run.settings.differences])),
        _section("Machine", _table(["", ""], machine_facts(run))),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def comparison_text(comparison: Comparison) -> str:
    """The comparison of several runs."""
    runs = [run for group in comparison.groups for run in group.runs]
    parts = [f"# {count(len(runs), 'run')}, {count(len(comparison.groups), 'group')}\n"]
    for env, groups in comparison.envs.items():
        rows = score_rows(groups)
        body = _table(SCORE_HEAD, rows)
        body += "\n" + _list(verdict.sentence() for verdict in verdicts(comparison, env))
        body += "\n" + _list(warnings(comparison, env))
        body += "\n" + _table(NORMALISED_HEAD, normalised_rows(groups))
        body += "\n" + _efficiency(comparison, env)
        body += "\n" + _table(
            ["better", "worse", "probability of improvement", "95 % interval"],
            improvement_rows(comparison.improvements(env)),
        )
        different = different_settings(groups)
        body += "\n" + _table(["setting", *(group.label for group in groups)],
                              [[key, *map(show_value, row)] for key, row in different.items()])  # fmt: skip
        parts.append(_section(env, re.sub(r"\n{3,}", "\n\n", body.strip()) + "\n"))
    parts.append(
        _section(
            "Over all environments", _table(["group", "scaled score (IQM)", "95 % interval"], shared_rows(comparison))
        )
    )
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    parts.append(_problems(problems))
    return "\n".join(part for part in parts if part)


def _efficiency(comparison: Comparison, env: str) -> str:
    found = efficiency(comparison, env)
    return f"{escape_markdown(found.title)}:\n\n{_table(EFFICIENCY_HEAD, found.rows)}" if found else ""


def sparkline(values: Array) -> str:
    """A curve as a line of blocks."""
    if not len(values):
        return ""
    if len(values) > WIDTH:
        values = np.array([part.mean() for part in np.array_split(values, WIDTH)])
    low, span = values.min(), np.ptp(values)
    levels = ((values - low) / span * (len(BLOCKS) - 1)).round().astype(int) if span else np.zeros(len(values), int)
    return "".join(BLOCKS[level] for level in levels)


def _alert(alert: Alert, unit: str) -> str:
    return f"{alert.level}: {alert.message} ({alert.rule}, {unit.removesuffix('s')} {whole(alert.x)})"


def _learning(run: RunData) -> str:
    rows = sorted(run.evaluations.rows, key=lambda row: row.x)
    lines = []
    if rows:
        means = np.array([row.mean for row in rows])
        lines.append(["evaluation", sparkline(means), score(means[0]), score(means[-1])])
    if run.episodes.returns.count:
        curve = run.episodes.returns.curve()
        lines.append(["training", sparkline(curve.mean), score(curve.mean[0]), score(curve.mean[-1])])
    return _table(["return", "over the run", "first", "last"], lines)


def _foresight(run: RunData, look: Foresight) -> str:
    judged = escape_markdown(verdict(look, run.final_score, run.solved_at))
    tables = (_table(ERROR_HEAD, error_rows(look)), _table(CALIBRATION_HEAD, calibration_rows(look)))
    return "\n".join(part for part in (judged and f"{judged}\n", f"{about(look, run.unit)}\n", *tables) if part)


def _time_rows(run: RunData) -> list[list[str]]:
    parts = time_parts(run)
    total = sum(parts.values()) or 1.0
    return [
        [PART_NAMES.get(name, name), duration(seconds), percent(seconds / total)] for name, seconds in parts.items()
    ]


def _problems(problems: Iterable[str]) -> str:
    return _section("Notes on this report", _list(dict.fromkeys(problems)))


def _section(name: str, body: str) -> str:
    return f"## {escape_markdown(name)}\n\n{body}" if body else ""


def _list(items: Iterable[str]) -> str:
    return "".join(f"- {escape_markdown(item)}\n" for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(escape_markdown, row))} |\n" for row in rows]
    if not lines:
        return ""
    return f"| {' | '.join(map(escape_markdown, head))} |\n|{' --- |' * len(head)}\n{''.join(lines)}"
