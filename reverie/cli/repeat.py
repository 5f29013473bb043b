"""``reverie runs repeat``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli import names
from reverie.cli.options import Json, Quiet, RunsDir, Trust
from reverie.cli.train import parse_seeds, print_result


def repeat(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.", autocompletion=names.complete_run)],
    seed: Annotated[str, typer.Option(metavar="N[,N...]", help="The seed of the new run, or several.")],
    jobs: Annotated[int, typer.Option(min=1, help="How many seeds run at the same time.")] = 1,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    trust: Trust = False,
    as_json: Json = False,
    channel: Annotated[int | None, typer.Option(hidden=True, help="The socket that receives the result.")] = None,
) -> None:
    """Train a run again with other seeds, from its own config.yaml.

    Example: reverie runs repeat @last --seed 2,3 --jobs 2
    """
    from reverie import api
    from reverie.cli.channel import Parent

    seeds = parse_seeds(seed)
    if len(seeds) > 1:
        results, exit_code = repeat_seeds(run, seeds, runs_dir, jobs, quiet or as_json, trust)
        if as_json:
            typer.echo(json.dumps(results))
        raise typer.Exit(exit_code or int(any(result["state"] != "finished" for result in results)))
    parent = None if channel is None else Parent(channel)
    done = api.repeat(run, seeds[0], runs_dir, quiet=quiet or as_json, trust=trust)
    result = {"run": done.name, "path": str(done.path), **done.status}
    if parent is not None:
        parent.send(result)
    else:
        print_result(result, as_json)
    raise typer.Exit(done.exit_code)


def repeat_seeds(
    run: str, seeds: list[int], runs_dir: Path, jobs: int, is_silent: bool, trust: bool = False
) -> tuple[list[dict[str, object]], int]:
    """Train each seed in a process of its own. Returns their results and the exit code."""
    from reverie.cli.seeds import SeedRuns

    command = [sys.executable, "-P", "-m", "reverie", "runs", "repeat", run, "--runs-dir", str(runs_dir)]
    return SeedRuns([*command, *(["--trust"] if trust else [])], jobs, is_silent).train(seeds)
