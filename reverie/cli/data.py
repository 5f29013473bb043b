"""``reverie data``: datasets of stored episodes, for offline training or for others to use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from reverie.cli.evaluate import Which
from reverie.cli.options import Json, RunsDir, Trust
from reverie.core.wording import count

app = typer.Typer(no_args_is_help=True, help="Export, record and describe stored episodes.")
Out = Annotated[Path, typer.Option(metavar="DIR", help="A new folder for the dataset.")]
Form = Annotated[
    Literal["chunks", "minari"],
    typer.Option("--format", help="Reverie's own files, or a Minari dataset (needs the extra minari)."),
]


@app.command("export")
def export_command(
    target: Annotated[str, typer.Argument(metavar="RUN|DIR", help="A run with a replay buffer, or a dataset.")],
    out: Out,
    form: Form = "chunks",
    buffer: Annotated[str, typer.Option(help="The run's buffer to export.")] = "main",
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Export the replay buffer of a run as a dataset, or convert a dataset.

    Example: reverie data export @last --out data/cartpole
    """
    from reverie import api

    path = api.export_data(target, out, form, buffer, runs_dir, trust, quiet=as_json)
    _report(path, as_json)


@app.command("record")
def record_command(
    target: Annotated[str, typer.Argument(metavar="RUN|ENV", help="A run, or an env with --random.")],
    out: Out,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 100,
    random: Annotated[bool, typer.Option("--random", help="Act at random in an env.")] = False,
    policy: Which = "best",
    sample: Annotated[
        bool, typer.Option("--sample/--deterministic", help="Sample actions, or take the most likely ones.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the episodes and of the sampled actions.")] = 0,
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Play new episodes and write them as a dataset.

    Examples: reverie data record @last --episodes 100 --out data/expert,
    reverie data record CartPole-v1 --random --out data/random
    """
    from reverie import api

    path = api.record_data(target, out, episodes, random, policy, sample, seed, runs_dir, trust, quiet=as_json)
    _report(path, as_json)


@app.command("info")
def info_command(
    source: Annotated[str, typer.Argument(metavar="DIR|minari:NAME", help="A dataset.")], as_json: Json = False
) -> None:
    """Describe a dataset.

    Example: reverie data info data/cartpole
    """
    from reverie import api

    _show(api.describe_data(source, quiet=as_json), as_json)


def _report(path: Path, as_json: bool) -> None:
    from reverie import api

    _show(api.describe_data(str(path), quiet=as_json), as_json)
    if not as_json:
        typer.echo(f"Learn from it: reverie train ENV:VARIANT offline buffers.main.source={path}")


def _show(about: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(about))
        return
    typer.echo(
        f"{about['source']}: {count(about['episodes'], 'episode')}, {count(about['rows'], 'row')} ({about['origin']})"
    )
    typer.echo(
        f"return {about['return_mean']:.2f}, from {about['return_min']:.2f} to {about['return_max']:.2f},"
        f" mean length {about['length_mean']:.1f}, {count(about['terminated'], 'episode')} terminated"
    )
    for key, text in about["columns"].items():
        typer.echo(f"{key}: {text}")
