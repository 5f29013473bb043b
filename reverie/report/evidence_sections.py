"""Parts of a comparison's page: what is decided, normalised scores, sample efficiency and performance profiles."""

from __future__ import annotations

import numpy as np

from reverie.report.charts import Chart, Line
from reverie.report.efficiency import HEAD as EFFICIENCY_HEAD
from reverie.report.efficiency import efficiency
from reverie.report.fairness import warnings
from reverie.report.formatting import escape
from reverie.report.groups import Comparison, Group
from reverie.report.html_elements import figure, folded, legend, table
from reverie.report.score_tables import NORMALISED_HEAD, normalised_rows, titled
from reverie.report.sections import problem_box
from reverie.report.seed_statistics import performance_profile
from reverie.report.verdicts import verdicts

MOST_SENTENCES = 40
MOST_CURVES = 8
PROFILE_POINTS = 101


def sentences(comparison: Comparison, env: str) -> str:
    """What is decided, and what makes the comparison weaker."""
    sure = [verdict.sentence() for verdict in verdicts(comparison, env)][:MOST_SENTENCES]
    weak = warnings(comparison, env)
    html = "".join(f"<li>{escape(text)}</li>" for text in sure)
    html = f'<ul class="verdicts">{html}</ul>\n' if html else ""
    return problem_box(weak) + html


def normalised_table(groups: list[Group]) -> str:
    rows = titled(normalised_rows(groups))
    return table(NORMALISED_HEAD, rows, (1, 2), "Normalised scores") if rows else ""


def efficiency_table(comparison: Comparison, env: str) -> str:
    found = efficiency(comparison, env)
    if found is None:
        return ""
    rows = titled(found.rows)
    return f'<p class="note">{escape(found.title)}.</p>' + table(EFFICIENCY_HEAD, rows, (1, 2, 3), found.title)


def profiles(groups: list[Group]) -> str:
    """The fraction of each group's runs above every score. It shows what a mean hides: seeds that fail."""
    drawn = [(index, group) for index, group in enumerate(groups[:MOST_CURVES]) if len(group.scores) > 1]
    everything = np.concatenate([group.scores for _, group in drawn]) if drawn else np.zeros(0)
    if not len(everything) or not np.ptp(everything):
        return ""
    thresholds = np.linspace(everything.min(), everything.max(), PROFILE_POINTS)
    lines = []
    for index, group in drawn:
        above, low, high = performance_profile([group.scores], thresholds)
        lines.append(Line(thresholds, above, ((low, high),), index))
    about = f"Performance profiles of {', '.join(group.label for _, group in drawn)}"
    chart = Chart(lines, about, "final score", "fraction of runs above", has_dashes=True, is_counted=False)
    return folded(
        "Performance profiles", legend(group.label for _, group in drawn) + figure("Performance profiles", chart)
    )
