"""The page about one run."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

from reverie.runs.report.charts import Chart, Line, line_of
from reverie.runs.report.elements import facts, figure, folded, page, section, small_figure, table
from reverie.runs.report.facts import (
    PART_NAMES,
    config_link,
    machine_facts,
    other_metrics,
    score_lines,
    shown_metrics,
    time_parts,
)
from reverie.runs.report.gather import RunData
from reverie.runs.report.settings import show_value
from reverie.runs.report.wording import count, duration, escape, number, percent, score, short_number, title, whole

UNITS = {"env_steps": "env steps", "updates": "updates"}


def run_page(run: RunData, base: Path | None = None) -> str:
    """The whole page; ``base`` is the folder it will lie in, which links start from."""
    name = f"{run.env} · {title(run.algorithm)} · seed {run.seed}"
    parts = (
        _head(run), problem_box(run.problems), _alerts(run), _curves(run), _films(run, base or run.path),
        _multiples(run), _time(run), _settings(run), section("Machine", facts(machine_facts(run))), _foot(run),
    )  # fmt: skip
    return page(f"{name} · {score(run.final_score)}", "".join(parts))


def problem_box(problems: list[str]) -> str:
    """What is missing or damaged, said before anyone wonders."""
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in dict.fromkeys(problems))
    return (
        f'<aside class="missing" aria-label="What is missing">What to know about this report:<ul>{items}</ul></aside>\n'
    )


def _head(run: RunData) -> str:
    state = run.state if run.state in ("finished", "failed", "stopped", "running", "created") else ""
    steps = f"{whole(run.env_steps)} env steps" + (f" of {whole(run.budget)}" if _is_short(run) else "")
    about = [f'<span class="state {state}">{escape(run.state)}</span>', f"seed {escape(run.seed)}", steps]
    about += [escape(duration(run.machine.wall_seconds))] if run.machine.wall_seconds else []
    boxes = "".join(
        f"<div{' class=main' if place == 0 else ''}><b>{escape(value)}</b><span>{escape(label)}</span></div>"
        for place, (value, label) in enumerate(score_lines(run))
    )
    return (
        f"<header>\n<h1>{escape(run.env)} · {escape(title(run.algorithm))}</h1>\n"
        f'<p class="about">{" · ".join(about)}<br>{escape(run.name)}</p>\n<div class="scores">{boxes}</div>\n</header>\n'
    )


def _is_short(run: RunData) -> bool:
    return run.state != "finished" and run.budget is not None and run.env_steps < run.budget


def _alerts(run: RunData) -> str:
    items = [
        f'<li class="{alert.level if alert.level in ("warning", "error") else "info"}"><b>{escape(alert.level)}</b> '
        f"{escape(alert.message)} <span>{escape(alert.rule)}, env step {escape(whole(alert.env_steps))}</span></li>"
        for alert in run.alerts
    ]
    more = run.num_alerts - len(run.alerts)
    note = f"The first {len(run.alerts)} of {run.num_alerts:,}." if more else ""
    return section("Alerts", f'<ul class="alerts">{"".join(items)}</ul>' if items else "", note)


def _curves(run: RunData) -> str:
    parts = [evaluation_figure(run)] if run.evaluations.rows else []
    if run.episodes.returns.count:
        parts.append(_training_figure(run))
    return section("Learning", "".join(parts))


def evaluation_figure(run: RunData) -> str:
    rows = sorted(run.evaluations.rows, key=lambda row: row.x)
    columns = (np.array([getattr(row, name) for row in rows])
               for name in ("x", "mean", "low", "high", "minimum", "maximum"))  # fmt: skip
    x, mean, low, high, lowest, highest = columns
    line = Line(x, mean, ((low, high), (lowest, highest)), has_points=True)
    first, last, best = rows[0], rows[-1], run.evaluations.best
    told = f"Evaluation return: {score(first.mean)} at {short_number(first.x)}, {score(last.mean)} at {short_number(last.x)}"
    told += f", best {score(best.mean)} at {short_number(best.x)} {UNITS[run.axis]}." if best else "."
    note = "mean of an evaluation's episodes, with its 95 % interval (dark) and the range of episodes (light)"
    note += f"; dashed: solved at {score(run.solved_at)}" if run.solved_at is not None else ""
    chart = Chart([line], told, UNITS[run.axis], "return", run.solved_at)
    return figure("Evaluation return", chart, note)


def _training_figure(run: RunData) -> str:
    returns = run.episodes.returns
    curve = returns.curve()
    low, high = returns.extremes()
    told = f"Training return of {count(returns.count, 'episode')}, from {score(low)} to {score(high)}, lately {score(curve.mean[-1])}."
    is_bucketed = len(curve) < returns.count
    note = "mean of neighbouring episodes, with their range" if is_bucketed else "every episode of collection"
    return figure("Training return", Chart([line_of(curve, 1)], told, y_unit="return"), note)


def _multiples(run: RunData) -> str:
    drawn = "".join(
        small_figure(name, Chart([line_of(series.curve())], f"{name}: last value {number(series.last)}.", UNITS[run.axis]),
                     number(series.last))
        for name, series in shown_metrics(run)
    )  # fmt: skip
    html = f'<div class="multiples">{drawn}</div>' if drawn else ""
    others = other_metrics(run)
    if others:
        rows = [
            [name, number(entry.last), *map(number, entry.extremes()), f"{entry.count:,}"] for name, entry in others
        ]
        head = ["metric", "last", "lowest", "highest", "lines"]
        html += folded(f"{count(len(others), 'further metric')}", table(head, rows, range(1, 5), "Further metrics"))
    if run.metrics.unlisted:
        html += f'<p class="note">{run.metrics.unlisted:,} more metrics are not listed.</p>'
    return section("Metrics", html, "Averaged between two lines of metrics.jsonl; the number is the last value.")


def _time(run: RunData) -> str:
    parts = time_parts(run)
    html = ""
    if parts:
        total = sum(parts.values()) or 1.0
        shares = [(name, seconds, seconds / total) for name, seconds in parts.items()]
        spans = "".join(
            f'<span class="k{i % 8}" style="flex:{share:.4f} 0 0"></span>' for i, (_, _, share) in enumerate(shares)
        )
        told = ", ".join(f"{PART_NAMES.get(name, name)} {percent(share)}" for name, _, share in shares)
        rows = "".join(
            f'<tr><th scope="row"><i class="swatch k{i % 8}"></i>{escape(PART_NAMES.get(name, name))}</th>'
            f'<td class="number">{escape(duration(seconds))}</td><td class="number">{percent(share)}</td></tr>'
            for i, (name, seconds, share) in enumerate(shares)
        )
        html = (
            f'<div class="bar" role="img" aria-label="{escape(told)}">{spans}</div><table><tbody>{rows}</tbody></table>'
        )
    if run.machine.speed.count:
        curve = run.machine.speed.curve()
        chart = Chart([line_of(curve, 2)], f"Env steps per second, lately {whole(run.machine.speed.last)}.")
        html += f'<div class="multiples speed">{small_figure("Env steps per second", chart, whole(run.machine.speed.last))}</div>'
    return section("Time", html, "Where the time went, by part of the loop." if parts else "")


def _settings(run: RunData) -> str:
    settings = run.settings
    if not settings.values:
        return ""
    html = '<p class="note">No setting differs from the preset.</p>' if settings.has_sources else ""
    if settings.differences:
        rows = [
            [entry.key, show_value(entry.before), show_value(entry.value), entry.source]
            for entry in settings.differences
        ]
        html = table(["setting", "preset", "this run", "set by"], rows, name="Differences from the preset")
        html = f'<div class="keys">{html}</div>'
    full = table(["setting", "value", "set by"], [[s.key, show_value(s.value), s.source] for s in settings.values])
    html += folded(f"All {len(settings.values)} settings", f'<div class="keys">{full}</div>')
    spec = str(run.manifest.get("spec") or "")
    return section("Settings", html, f"What differs from the preset {spec}." if settings.differences and spec else "")


def _films(run: RunData, base: Path) -> str:
    items = []
    for video in run.videos:
        name = f"The {video.which} policy"
        if video.data is None:
            link = config_link(run.path / video.name, base)
            items.append(
                f'<p><a href="{escape(link)}">{escape(name)}: {escape(video.name)}</a> (too large for this page)</p>'
            )
        else:
            data = base64.b64encode(video.data).decode()
            items.append(
                f"<figure><figcaption><b>{escape(name)}</b></figcaption>"
                f'<video controls muted loop playsinline preload="metadata" src="data:video/mp4;base64,{data}"></video></figure>'
            )
    return section("Video", f'<div class="films">{"".join(items)}</div>' if items else "")


def _foot(run: RunData) -> str:
    return (
        "<footer>Made by Reverie from the files of this run: metrics.jsonl, scores.jsonl, machine.jsonl, status.json, "
        f"config.yaml. Again: <code>reverie report {escape(run.name)}</code></footer>"
    )
