"""The page about one run."""

from __future__ import annotations

from pathlib import Path

from reverie.report.foresight_section import foresight_section
from reverie.report.formatting import duration, escape, score, title, whole
from reverie.report.html_elements import facts, page, section
from reverie.report.run_charts import learning_figures
from reverie.report.run_data import RunData
from reverie.report.run_facts import machine_facts, score_lines
from reverie.report.sections import (
    alert_section,
    metric_section,
    problem_box,
    setting_section,
    time_section,
    video_section,
)
from reverie.report.world_model_verdict import verdict

STATES = ("finished", "failed", "stopped", "running", "created")


def run_page(run: RunData, base: Path | None = None) -> str:
    """The whole page. Its links are relative to the folder ``base``, by default the run's own."""
    summary = verdict(run.foresight, run.final_score, run.solved_at) if run.foresight else ""
    parts = (
        _head(run),
        problem_box(run.problems),
        alert_section(run),
        section("Learning", learning_figures(run)),
        video_section(run, base or run.path),
        foresight_section(run.foresight, run.unit, summary),
        metric_section(run),
        time_section(run),
        setting_section(run),
        section("Machine", facts(machine_facts(run))),
        f"<footer>Made from the files of this run. To update: <code>reverie report {escape(run.name)}</code></footer>",
    )
    return page(f"{run.env} · {title(run.algorithm)} · seed {run.seed} · {score(run.final_score)}", "".join(parts))


def _head(run: RunData) -> str:
    boxes = "".join(
        f"<div{'' if index else ' class=main'}><b>{escape(value)}</b><span>{escape(label)}</span></div>"
        for index, (value, label) in enumerate(score_lines(run))
    )
    return (
        f"<header>\n<h1>{escape(run.env)} · {escape(title(run.algorithm))}</h1>\n"
        f'<p class="about">{_about(run)}<br>{escape(run.name)}</p>\n<div class="scores">{boxes}</div>\n</header>\n'
    )


def _about(run: RunData) -> str:
    is_short = run.state != "finished" and run.budget is not None and run.done < run.budget
    steps = run.amount + (f" of {whole(run.budget)}" if is_short else "")
    state = f'<span class="state {run.state if run.state in STATES else ""}">{escape(run.state)}</span>'
    wall = [escape(duration(run.machine.wall_seconds))] if run.machine.wall_seconds else []
    return " · ".join([state, f"seed {escape(run.seed)}", steps, *wall])
