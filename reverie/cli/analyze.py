"""``reverie analyze``."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from reverie.cli.options import Json, RunsDir, RunWords

MOST_GROUPS = 5


def analyze(runs: RunWords = None, runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Say in words what happened in runs: the evidence, the likeliest causes, and what to type next.

    Example: reverie analyze @last
    """
    from reverie.core.errors import RunError
    from reverie.lab.analyze.analysis import analyze as analyze_runs
    from reverie.lab.analyze.text import as_text
    from reverie.lab.find import find_runs
    from reverie.report.run_data import gather

    found = find_runs(runs or ["@last"], runs_dir)
    if not found:
        raise RunError("No run matches these filters.", "Name runs, or use fewer filters.")
    analyses = analyze_runs([gather(run.path, with_videos=False) for run in found])
    if as_json:
        typer.echo(json.dumps([analysis.to_json() for analysis in analyses]))
        return
    typer.echo(("\n\n" + "-" * 80 + "\n\n").join(map(as_text, analyses[:MOST_GROUPS])))
    if len(analyses) > MOST_GROUPS:
        typer.echo(f"\n... and {len(analyses) - MOST_GROUPS} more groups of runs. Name fewer, or use --json.")
