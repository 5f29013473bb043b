"""Facts about a run that both forms of a report show: scores, machine, time, and the order of metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reverie.config.secrets import hide_in_word
from reverie.core.wording import count
from reverie.envs.suites import find_suite
from reverie.report.formatting import clean, duration, moment, score, whole
from reverie.report.log_summaries import Value, importance
from reverie.report.run_data import RunData
from reverie.report.safe_files import as_number
from reverie.report.series import Series
from reverie.report.settings import show_value

MOST_DRAWN = 12
MOST_LISTED = 500
OWN_CHARTS = ("collect/return",)
PART_NAMES = {"collect": "collect", "update": "update", "evaluate": "evaluate", "save": "save and other parts"}


def score_lines(run: RunData) -> list[tuple[str, str]]:
    """The scores at the top of the report, each with its label. The first is the main one."""
    last, best, recent = run.final_evaluation, run.evaluations.best, run.episodes.recent
    label = "final score" if run.has_final else "last evaluation"
    if last is not None and last.episodes:
        label += f", mean of {count(last.episodes, 'episode')}"
    if last is not None and last.low < last.high:
        label += f", 95 % interval {score(last.low)} to {score(last.high)}"
    lines = [(score(run.final_score), label)]
    if run.best_score is not None:
        lines.append((score(run.best_score), f"best, at {whole(best.x)} {run.unit}" if best else "best"))
    if recent:
        lines.append((score(sum(recent) / len(recent)), f"last {count(len(recent), 'training episode')}"))
    return lines + _suite_scores(run)


def _suite_scores(run: RunData) -> list[tuple[str, str]]:
    """The score of the env's suite over all episodes of the training, if it has one of its own."""
    suite = find_suite(run.env)
    if suite is None or suite.success_score is None or not run.episodes.count:
        return []
    found = suite.success_score.of_rates(run.episodes.success_rates)
    label = f"over all {count(run.episodes.count, 'training episode')}"
    return [(score(value), f"{name.replace('_', ' ')}, {label}") for name, value in found.items()]


def shown_metrics(run: RunData) -> list[tuple[str, Series]]:
    """The metrics that are drawn, the most important first."""
    known = {name: series for name, series in run.metrics.curves.items() if series.count and name not in OWN_CHARTS}
    return [(name, known[name]) for name in sorted(known, key=importance)[:MOST_DRAWN]]


def other_metrics(run: RunData) -> list[tuple[str, Series | Value]]:
    """The metrics that are only listed."""
    drawn = {name for name, _ in shown_metrics(run)}
    everything: dict[str, Series | Value] = {**run.metrics.curves, **run.metrics.values}
    hidden = {*drawn, *OWN_CHARTS}
    return [(name, entry) for name, entry in everything.items() if name not in hidden][:MOST_LISTED]


def time_parts(run: RunData) -> dict[str, float]:
    """Seconds by part of the loop."""
    parts = {name: seconds for name, seconds in run.machine.parts().items() if seconds > 0}
    known = sorted(parts, key=lambda name: (list(PART_NAMES).index(name) if name in PART_NAMES else 99, name))
    return {name: parts[name] for name in known[:8]}


def machine_facts(run: RunData) -> list[tuple[str, str]]:
    """The machine, the versions and the resources of the run."""
    manifest, machine, settings = run.manifest, _mapping(run.manifest.get("machine")), run.settings
    git, versions = _mapping(manifest.get("git")), _mapping(manifest.get("versions"))
    threads = settings.text("backend", "threads")
    commit = str(git.get("commit") or "")
    pairs = [
        ("processor", " × ".join(str(part) for part in (machine.get("cores"), machine.get("processor")) if part)),
        (
            "device",
            ", ".join(
                part for part in (settings.text("backend", "device"), f"threads: {threads}" if threads else "") if part
            ),
        ),
        ("system", str(machine.get("system") or "")),
        ("versions", ", ".join(f"{name} {show_value(version)}" for name, version in list(versions.items())[:12])),
        ("commit", commit + ("" if git.get("is_clean", True) else " with uncommitted changes") if commit else ""),
        ("created", moment(created) if (created := as_number(manifest.get("created"))) else ""),
        ("wall time", duration(run.machine.wall_seconds) if run.machine.wall_seconds else ""),
        ("CPU time", duration(run.machine.cpu_seconds) if run.machine.cpu_seconds else ""),
        ("peak memory", f"{whole(run.machine.peak_megabytes)} MB" if run.machine.peak_megabytes else ""),
        ("crashed envs", whole(run.machine.crashes) if run.machine.crashes else ""),
        ("command", _command(manifest.get("command"))),
    ]
    return [(name, clean(text)) for name, text in pairs if text]


def _command(command: Any) -> str:
    """The command as typed, without the path of the program and without secrets."""
    if not isinstance(command, list) or not command:
        return ""
    program = Path(str(command[0])).name
    return " ".join(
        ["reverie" if program == "__main__.py" else program, *(hide_in_word(str(word)) for word in command[1:])]
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
