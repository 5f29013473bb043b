"""``reverie foresee``: compare a world model's dreams with what really happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from reverie.cli.evaluate import RunName, Which
from reverie.cli.options import Json, RunsDir, Trust
from reverie.core.wording import count


def foresee(
    run: RunName = "@last",
    policy: Which = "final",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Length of each dream in steps. Default: evaluate.foresight.steps.")
    ] = None,
    dreams: Annotated[
        int | None, typer.Option(min=1, help="Consecutive dreams per env. Default: evaluate.foresight.dreams.")
    ] = None,
    envs: Annotated[int | None, typer.Option(min=1, help="Number of envs. Default: evaluate.num_envs.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the episodes. Default: that of the run's evaluations.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the videos and foresight.json.")] = None,
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Compare a trained world model's dreams with new episodes.

    Writes videos (truth, model, error), reconstructions and foresight.json.

    Example: reverie foresee @last --steps 15
    """
    from reverie import api

    found = api.foresee(run, policy, steps, dreams, envs, seed, out, runs_dir, trust, quiet=as_json)
    typer.echo(json.dumps(found) if as_json else _text(found))


def _text(found: dict[str, Any]) -> str:
    head = f"{found['run']} ({found['policy']} policy), dreams of {count(found['steps'], 'step')}"
    lines = [head, f"{'':24}{'error':>12}{'repeat last':>14}{'relative':>10}"]
    metrics = found["metrics"]
    for key in found["open_loop"]:
        model, last = (metrics[f"open_loop/{key}/{name}"] for name in ("mse", "repeat_last_mse"))
        relative = metrics.get(f"open_loop/{key}/relative_mse")
        lines.append(f"{key:24}{model:12.5g}{last:14.5g}{'' if relative is None else f'{relative:10.3f}'}")
    for key in found["calibration"]:
        error, bias = (metrics[f"calibration/{key}_{name}"] for name in ("error", "bias"))
        lines.append(f"predicted {key}: calibration error {error:.4g}, bias {bias:+.4g}")
    return "\n".join([*lines, found["folder"]])
