"""``reverie resume`` and ``reverie verify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reverie.cli.evaluate import RunName
from reverie.cli.options import Json, Quiet, RunsDir, Steps, Trust
from reverie.cli.train import print_result

if TYPE_CHECKING:
    from reverie.runs.verify import Verdict


def resume(
    run: RunName = "@last",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE...]", help="Settings to change from now on.")
    ] = None,
    steps: Steps = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint to resume from, by its env steps. Default: the newest.")
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest checkpoint, bit for bit as if it had never stopped.

    Example: reverie resume @last --steps 200000
    """
    from reverie import api

    done = api.resume(
        run, *(overrides or []), steps=steps, checkpoint=checkpoint, runs_dir=runs_dir,
        quiet=quiet or as_json, trust=trust,
    )  # fmt: skip
    print_result({"run": done.name, "path": str(done.path), **done.status}, as_json)
    raise typer.Exit(done.exit_code)


def verify(
    run: RunName = "@last",
    segments: Annotated[
        Literal["last", "first", "all"], typer.Option(help="The segments between checkpoints to train again.")
    ] = "last",
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Verify that a run is reproducible: train segments of it again and compare every bit.

    Compares the logged metrics, scores and alerts, and all saved state at the end of each segment: weights, optimiser,
    buffers, normaliser, random streams, envs and counters.

    Example: reverie verify @last --segments all
    """
    from reverie import api

    verdicts = api.verify(run, segments, runs_dir, trust, quiet=as_json)
    if as_json:
        typer.echo(json.dumps([verdict.to_json() for verdict in verdicts]))
    else:
        for verdict in verdicts:
            typer.echo(f"{verdict.segment}: {_word_for(verdict)}")
            for line in verdict.differences:
                typer.echo(f"  {line}")
            for line in verdict.surroundings:
                typer.echo(f"  changed since then: {line}")
    raise typer.Exit(0 if all(verdict.is_reproduced for verdict in verdicts) else 1)


def _word_for(verdict: Verdict) -> str:
    if verdict.obstacle:
        return f"cannot be checked: {verdict.obstacle}"
    return "reproduced" if verdict.is_reproduced else "NOT reproduced"
