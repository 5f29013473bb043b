"""Sections about one run: alerts, videos, metrics, time, settings."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import quote

from reverie.core.wording import count
from reverie.report.formatting import duration, escape, number, percent, whole
from reverie.report.html_elements import folded, section, table
from reverie.report.run_charts import metric_figures, speed_figure
from reverie.report.run_data import RunData, Video
from reverie.report.run_facts import PART_NAMES, other_metrics, time_parts
from reverie.report.settings import show_value

LEVELS = ("warning", "error")


def problem_box(problems: list[str]) -> str:
    """A box that lists what is missing or damaged."""
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in dict.fromkeys(problems))
    title = "Notes on this report"
    return f'<aside class="missing" aria-label="{title}">{title}<ul>{items}</ul></aside>\n'


def alert_section(run: RunData) -> str:
    unit = run.unit.removesuffix("s")
    items = "".join(
        f'<li class="{alert.level if alert.level in LEVELS else "info"}"><b>{escape(alert.level)}</b> '
        f"{escape(alert.message)} <span>{escape(alert.rule)}, {unit} {escape(whole(alert.x))}</span></li>"
        for alert in run.alerts
    )
    is_cut = run.num_alerts > len(run.alerts)
    note = f"The first {len(run.alerts)} of {run.num_alerts:,}." if is_cut else ""
    return section("Alerts", f'<ul class="alerts">{items}</ul>' if items else "", note)


def video_section(run: RunData, base: Path) -> str:
    items = "".join(_video(run, video, base) for video in run.videos)
    return section("Video", f'<div class="videos">{items}</div>' if items else "")


def _video(run: RunData, video: Video, base: Path) -> str:
    name = f"The {video.which} policy"
    if video.data is None:
        link = relative_link(run.path / video.name, base)
        return f'<p><a href="{escape(link)}">{escape(name)}: {escape(video.name)}</a> (too large for this page)</p>'
    source = f"data:video/mp4;base64,{base64.b64encode(video.data).decode()}"
    html = f'<video controls muted loop playsinline preload="metadata" src="{source}"></video>'
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{html}</figure>"


def relative_link(target: Path, base: Path) -> str:
    """A link from the folder of a page to a file."""
    return quote(Path(os.path.relpath(target, base)).as_posix())


def metric_section(run: RunData) -> str:
    html, others = metric_figures(run), other_metrics(run)
    if others:
        rows = [
            [name, number(metric.last), *map(number, metric.extremes()), whole(metric.count)] for name, metric in others
        ]
        head = ["metric", "last", "lowest", "highest", "lines"]
        html += folded(count(len(others), "further metric"), table(head, rows, range(1, 5), "Further metrics"))
    if run.metrics.unlisted:
        html += f'<p class="note">{count(run.metrics.unlisted, "more metric")} not listed.</p>'
    return section("Metrics", html, "Averages between two lines of metrics.jsonl. The number is the last value.")


def time_section(run: RunData) -> str:
    parts = time_parts(run)
    total = sum(parts.values()) or 1.0
    times = [(PART_NAMES.get(name, name), seconds, seconds / total) for name, seconds in parts.items()]
    note = "Training time by part of the loop, without start-up and final evaluation." if parts else ""
    return section("Time", (_time_table(times) if times else "") + speed_figure(run), note)


def _time_table(times: list[tuple[str, float, float]]) -> str:
    """A bar of the fractions, and a table with name, seconds and percentage."""
    label = escape(", ".join(f"{name} {percent(fraction)}" for name, _, fraction in times))
    spans = "".join(
        f'<span class="k{index}" style="flex-grow:{fraction:.4f}"></span>' for index, (*_, fraction) in enumerate(times)
    )
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch k{index}"></i>{escape(name)}</th>'
        f'<td class="number">{escape(duration(seconds))}</td><td class="number">{percent(fraction)}</td></tr>'
        for index, (name, seconds, fraction) in enumerate(times)
    )
    return f'<div class="bar" role="img" aria-label="{label}">{spans}</div><table><tbody>{rows}</tbody></table>'


def setting_section(run: RunData) -> str:
    settings = run.settings
    if not settings.values:
        return ""
    html, note = "", ""
    if settings.differences:
        rows = [
            [entry.key, *map(show_value, (entry.before, entry.value)), entry.source] for entry in settings.differences
        ]
        html = f'<div class="keys">{table(["setting", "before", "this run", "set by"], rows, name="Differences")}</div>'
        note = f"Settings that differ from the preset {run.manifest.get('spec') or ''} or were changed by a resume."
    elif settings.has_sources:
        note = "All settings are those of the preset."
    full = table(["setting", "value", "set by"], [[s.key, show_value(s.value), s.source] for s in settings.values])
    html += folded(f"All {count(len(settings.values), 'setting')}", f'<div class="keys">{full}</div>')
    return section("Settings", html, note)
