"""``reverie export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.options import Json, RunsDir, RunWords, Trust


def export(
    runs: RunWords = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Tables: csv, json, latex, markdown, parquet. Learning curves: pdf, png. The policy of one run: "
            "policy (a folder), zip, onnx.",
        ),
    ] = "csv",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="File or folder to write. Default: print text, name other files by the runs."
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="groups|runs|curves|metrics",
            help="Rows of a table: groups of seeds, runs, evaluations, or lines of metrics.jsonl.",
        ),
    ] = "groups",
    statistic: Annotated[
        str, typer.Option(metavar="iqm|mean", help="Interquartile mean or mean over the seeds of a group.")
    ] = "iqm",
    policy: Annotated[str, typer.Option(metavar="best|final", help="The policy to export.")] = "best",
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Export runs as a table, a figure or a policy.

    Examples: reverie export 'CartPole*' --format latex, reverie export @best --format onnx
    """
    from reverie import api

    which: api.Which = "final" if policy == "final" else "best"
    if policy != which:
        raise typer.BadParameter(f"--policy is best or final, not '{policy}'.")
    exported = api.export(
        *(runs or []), format=form, out=out, data=data, statistic=statistic, which=which, runs_dir=runs_dir, trust=trust
    )
    if as_json:
        path = None if exported.path is None else str(exported.path)
        typer.echo(json.dumps({"path": path, "text": exported.text, "notes": list(exported.notes)}))
        return
    typer.echo(exported.text or str(exported.path), nl=not exported.text)
    for note in exported.notes:
        typer.echo(note, err=True)
