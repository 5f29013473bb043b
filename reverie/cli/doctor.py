"""``reverie doctor``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reverie.cli.options import Json, RunsDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reverie.doctor import Finding

COLOURS = {"ok": "green", "hint": "yellow", "broken": "red"}


def doctor(runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Check this machine: versions, extras, rendering, threads, memory and disk, and what to install.

    Exits with code 1 only if something is broken that every run needs.

    Example: reverie doctor
    """
    from reverie.doctor import examine

    findings = examine(runs_dir)
    if as_json:
        typer.echo(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        _print(findings)
    raise typer.Exit(int(any(finding.state == "broken" for finding in findings)))


def _print(findings: Sequence[Finding]) -> None:
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        state = f"[{COLOURS[finding.state]}]{finding.state}[/]"
        table.add_row(state, finding.topic, escape(finding.text))
        if finding.fix:
            table.add_row("", "", f"[dim]{escape(finding.fix)}[/dim]")
    console = Console(highlight=False)
    console.print(table)
    broken = [finding.topic for finding in findings if finding.state == "broken"]
    console.print(f"Broken: {', '.join(broken)}." if broken else "This machine has everything that a run needs.")
