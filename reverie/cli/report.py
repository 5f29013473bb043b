"""``reverie report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.options import Json, RunsDir, RunWords


def report(
    runs: RunWords = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="File to write.")] = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """Write a page about one run (default: @last), or a comparison of several: report.html, and the same as report.md.

    Example: reverie report 'CartPole-v1-ppo*'
    """
    from reverie import api

    page = api.report(*(runs or []), runs_dir=runs_dir, out=out, quiet=as_json)
    if as_json:
        typer.echo(json.dumps({"html": str(page), "markdown": str(page.with_suffix(".md"))}))
    else:
        typer.echo(f"{page}\n{page.with_suffix('.md')}")
