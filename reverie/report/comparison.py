"""The page that compares several runs."""

from __future__ import annotations

from pathlib import Path

from reverie.core.wording import count
from reverie.report.charts import Chart, Line
from reverie.report.efficiency import UNITS
from reverie.report.evidence_sections import efficiency_table, normalised_table, profiles, sentences
from reverie.report.formatting import escape, group_title, score, short_number
from reverie.report.groups import Comparison, Group, different_settings
from reverie.report.html_elements import Cell, Link, figure, folded, legend, page, section, table
from reverie.report.run_data import RunData
from reverie.report.score_tables import SCORE_HEAD, improvement_rows, score_rows, shared_rows, shared_scale
from reverie.report.sections import problem_box, relative_link
from reverie.report.settings import show_value

MOST_GROUPS = 8
"""Maximum number of curves in a chart."""
FEW_PAIRS = 6
METHOD = (
    "Interquartile means of the final scores with stratified bootstrap intervals (95 %), after Agarwal et al. 2021. The"
    " seed is the unit. With fewer than five runs the intervals are too narrow. An exact rank test decides what is"
    " called better. If settings were equal, it would be wrong in at most 5 % of cases, over all pairs of an env."
)


def comparison_page(comparison: Comparison, base: Path) -> str:
    """The whole page. Its links are relative to the folder ``base``."""
    runs = [run for group in comparison.groups for run in group.runs]
    envs = " and ".join([", ".join(list(comparison.envs)[:-1]), list(comparison.envs)[-1]][len(comparison.envs) == 1 :])
    name = (
        f"{envs}: {count(len(comparison.groups), 'group')} of runs"
        if len(comparison.envs) < 4
        else "Comparison of runs"
    )
    about = (
        f"{count(len(runs), 'run')} in {count(len(comparison.groups), 'group')} on {count(len(comparison.envs), 'env')}"
    )
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    shown = problems if len(problems) <= 20 else [*problems[:20], f"and {len(problems) - 20} more"]
    body = [f'<header>\n<h1>{escape(envs)}</h1>\n<p class="about">{about}</p>\n{_lead(comparison)}</header>\n']
    body += [problem_box(shown)]
    body += [_env_section(comparison, env, groups) for env, groups in comparison.envs.items()]
    body += [_shared_section(comparison), _run_section(comparison, base), f"<footer>{escape(METHOD)}</footer>"]
    return page(name, "".join(body))


def _lead(comparison: Comparison) -> str:
    """The best group of each env."""
    boxes: list[str] = []
    for env, groups in list(comparison.envs.items())[:3]:
        row = score_rows(groups)[0]
        where = f" on {env}" if len(comparison.envs) > 1 else ""
        label = (
            f"{group_title(row[0])}{where}: best final score of {count(len(groups), 'group')} ({_of_runs(groups[0])})"
        )
        boxes.append(f"<div{'' if boxes else ' class=main'}><b>{escape(row[2])}</b><span>{escape(label)}</span></div>")
    return f'<div class="scores">{"".join(boxes)}</div>\n'


def _of_runs(group: Group) -> str:
    return "IQM of " + count(len(group.scores), "run")


def _env_section(comparison: Comparison, env: str, groups: list[Group]) -> str:
    drawn = [group for group in groups if group.curve() is not None][:MOST_GROUPS]
    html = legend(group.label for group in drawn) + _curves(drawn) if drawn else ""
    html += table(
        [*SCORE_HEAD], [[group_title(row[0]), *row[1:]] for row in score_rows(groups)], (1, 2, 3, 4), "Scores"
    )
    html += sentences(comparison, env) + normalised_table(groups) + efficiency_table(comparison, env)
    html += profiles(groups)
    rows = improvement_rows(comparison.improvements(env))[:40]
    if rows:
        pairs = _improvements(rows)
        html += pairs if len(rows) <= FEW_PAIRS else folded("Probability of improvement", pairs)
    different = different_settings(groups)
    if different:
        values = [[key, *map(show_value, row[:MOST_GROUPS])] for key, row in list(different.items())[:100]]
        names = [group.label for group in groups[:MOST_GROUPS]]
        html += folded("Settings that differ", f'<div class="keys">{table(["setting", *names], values)}</div>')
    return section(env, html)


def _improvements(rows: list[list[str]]) -> str:
    note = (
        '<p class="note pairs">Probability that a run of the first group scores higher than one of the second. '
        "0.5 means no difference.</p>"
    )
    named = [[group_title(row[0]), group_title(row[1]), *row[2:]] for row in rows]
    return note + table(["group", "against", "probability", "95 % interval"], named, (2, 3))


def _curves(groups: list[Group]) -> str:
    lines: list[Line] = []
    descriptions = []
    for index, group in enumerate(groups):
        curve = group.curve()
        if curve is None:
            continue
        bands = ((curve.low, curve.high),) if curve.seeds > 1 else ()
        lines.append(Line(curve.x, curve.mean, bands, index, has_points=curve.seeds == 1))
        end = f"{short_number(float(curve.x[-1]))} {UNITS[group.by]}"
        descriptions.append(f"{group.label} ends at {score(float(curve.mean[-1]))} after {end}")
    goals = {run.solved_at for group in groups for run in group.runs}
    goal = goals.pop() if len(goals) == 1 else None
    unit = UNITS[groups[0].by]
    note = "mean over seeds where all of them have data, with its 95 % bootstrap interval"
    note += f". Dashed: solved at {score(goal)}" if goal is not None else ""
    return figure(
        "Evaluation return",
        Chart(lines, f"Evaluation return: {'; '.join(descriptions)}.", unit, "return", goal, has_dashes=True),
        note,
    )


def _shared_section(comparison: Comparison) -> str:
    rows = shared_rows(comparison)
    if not rows:
        return ""
    html = table(
        ["group", "scaled score (IQM)", "95 % interval"], [[group_title(row[0]), *row[1:]] for row in rows], (1, 2)
    )
    html += _improvements(improvement_rows(comparison.shared_improvements()))
    note = f"Groups that have runs in every env. {shared_scale(comparison)}"
    return section("Over all environments", html, note)


def _run_section(comparison: Comparison, base: Path) -> str:
    runs = [run for group in comparison.groups for run in group.runs]
    rows = [
        [_run_name(run, base), run.state, run.amount, score(run.final_score), score(run.best_score)] for run in runs
    ]
    return section("Runs", table(["run", "state", "done", "final", "best"], rows, (2, 3, 4), "Runs"))


def _run_name(run: RunData, base: Path) -> Cell:
    own = run.path / "report.html"
    return Link(run.name, relative_link(own, base)) if own.is_file() else run.name
