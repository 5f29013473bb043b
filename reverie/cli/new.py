"""``reverie new``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.options import Json


def new(
    kind: Annotated[str, typer.Argument(metavar="env|algorithm|network", help="What to make.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, such as my_walk.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder to write. Default: the name.")] = None,
    as_json: Json = False,
) -> None:
    """Make a project of your own: an env, an algorithm or a network, with a preset, a test and a Makefile.

    Example: reverie new env my_walk
    """
    from reverie.lab.new.project import create_project

    paths = create_project(kind, name, out)
    folder = paths[0].parent
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "files": [str(path) for path in paths]}))
        return
    typer.echo("\n".join(map(str, paths)))
    typer.echo(f"\nType next: cd {folder} && make train. README.md says more.")
