"""``reverie eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli import names
from reverie.cli.options import Json, RunsDir, Trust
from reverie.core.wording import count

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its name or the beginning of its name, @last, @best or @best:ENV.",
        autocompletion=names.complete_run,
    ),
]
Sample = Annotated[
    bool | None,
    typer.Option(
        "--sample/--deterministic",
        help="Sample actions, or take the most likely ones. Default: like the run's evaluations.",
    ),
]
Which = Annotated[
    str,
    typer.Option("--policy", metavar="best|final|STEPS", help="The best or the final policy, or that of a checkpoint."),
]


def evaluate(
    run: RunName = "@last",
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 100,
    policy: Which = "best",
    seed: Annotated[
        int | None, typer.Option(help="Seed of the episodes. Default: that of the run's evaluations.")
    ] = None,
    sample: Sample = None,
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Play episodes with a trained policy and report its scores.

    Example: reverie eval @last --episodes 100
    """
    from reverie import api

    result = api.evaluate(run, episodes, policy, seed, sample, runs_dir, trust, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(result))
        return
    which = f"policy of step {result['policy']}" if result["policy"].isdigit() else f"{result['policy']} policy"
    typer.echo(f"{result['run']} ({which}), {count(episodes, 'episode')}")
    interval = f"95% interval of the mean {result['return_low']:.2f} to {result['return_high']:.2f}"
    spread = f", std {result['return_std']:.2f}, {interval}" if episodes > 1 else ""  # undefined for one episode
    typer.echo(f"return: mean {result['return_mean']:.2f}{spread}")
    typer.echo(
        f"interquartile mean {result['return_iqm']:.2f}, min {result['return_min']:.2f}, "
        f"max {result['return_max']:.2f}, mean length {result['length_mean']:.1f}"
    )
    for key in sorted(key for key in result if key.endswith("_score")):
        typer.echo(f"{key.replace('_', ' ')} {result[key]:.2f}")
    for key in sorted(key for key in result if key.startswith("log/")):
        typer.echo(f"{key.removeprefix('log/')} {result[key]:.4f}")
