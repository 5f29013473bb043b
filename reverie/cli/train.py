"""``reverie train``."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from reverie.cli import names
from reverie.cli.options import Json, Quiet, RunsDir, Steps, Trust, Words

Spec = Annotated[
    str,
    typer.Argument(
        metavar="ENV:VARIANT",
        help="The env and how to train on it, e.g. CartPole-v1:ppo.",
        autocompletion=names.complete_spec,
    ),
]


@dataclass(frozen=True)
class Order:
    """The options of the command, except the seed."""

    spec: str
    words: list[str]
    steps: int | None
    runs_dir: Path
    quiet: bool
    as_json: bool
    channel: int | None
    init_from: str | None
    init_pattern: str


def train(
    spec: Spec,
    words: Words = None,
    seed: Annotated[
        str | None, typer.Option(metavar="N[,N...]", help="One seed, or several (1,2,3) for a run each.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many seeds run at the same time.")] = 1,
    steps: Steps = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Continue this run instead of starting a new one.", autocompletion=names.complete_run
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Start with the weights of this run.", autocompletion=names.complete_run),
    ] = None,
    init_pattern: Annotated[
        str, typer.Option(metavar="GLOB", help="Names of the weights that --init-from copies.")
    ] = "*",
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    debug: Annotated[
        bool | None,
        typer.Option(
            "--debug/--no-debug", help="Slow mode with extra checks and statistics. Default: on under a debugger."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the preflight, train nothing.")
    ] = False,
    trust: Trust = False,
    as_json: Json = False,
    channel: Annotated[int | None, typer.Option(hidden=True, help="The socket that receives the result.")] = None,
) -> None:
    """Train an agent and keep everything about it in a run folder.

    Example: reverie train CartPole-v1:ppo algorithm.gamma=0.99 --seed 1,2,3 --jobs 2

    Environments and their variants: reverie envs list. Every KEY: reverie config explain. The values of a run and where
    each comes from: reverie config show CartPole-v1:ppo.
    """
    words = [*(words or []), *([] if debug is None else [f"debug={str(debug).lower()}"])]
    words = _with_sweep(words) if resume is None else words
    seeds = parse_seeds(seed)
    order = Order(spec, words, steps, runs_dir, quiet, as_json, channel, init_from, init_pattern)
    if dry_run:
        _show_plan(spec, words, [*seeds] or [None], steps, as_json)
    elif resume is not None:
        _resume(resume, order, seeds, trust)
    elif len(seeds) > 1:
        _train_many(order, seeds, jobs)
    else:
        _train_one(order, seeds[0] if seeds else None)


def _train_one(order: Order, seed: int | None) -> None:
    from reverie import api
    from reverie.cli.channel import Parent

    parent = None if order.channel is None else Parent(order.channel)
    run = api.train(
        order.spec, *order.words, seed=seed, steps=order.steps, runs_dir=order.runs_dir, init_from=order.init_from,
        init_pattern=order.init_pattern, quiet=order.quiet or order.as_json,
    )  # fmt: skip
    result = {"run": run.name, "path": str(run.path), **run.status}
    if parent is not None:
        parent.send(result)
    else:
        print_result(result, order.as_json)
    raise typer.Exit(run.exit_code)


def _resume(name: str, order: Order, seeds: list[int], trust: bool) -> None:
    """``reverie resume``, after checking that the run matches the spec."""
    from reverie import api
    from reverie.core.errors import ConfigError
    from reverie.runs.resume import check_same_run
    from reverie.store.run_folder import RunFolder, find_run

    if len(seeds) > 1 or order.init_from is not None:
        raise ConfigError(
            "--resume continues a single run with its own weights.", "Leave out --init-from and further seeds."
        )
    check_same_run(RunFolder(find_run(name, order.runs_dir)), order.spec, seeds[0] if seeds else None, order.words)
    run = api.resume(
        name, *order.words, steps=order.steps, runs_dir=order.runs_dir, quiet=order.quiet or order.as_json, trust=trust
    )
    print_result({"run": run.name, "path": str(run.path), **run.status}, order.as_json)
    raise typer.Exit(run.exit_code)


def _train_many(order: Order, seeds: list[int], jobs: int) -> None:
    """Train one process per seed. A crash of one does not affect the others. Each run equals a run with one seed."""
    from reverie.cli.seeds import SeedRuns
    from reverie.config.pipeline import prepare_new
    from reverie.core.errors import TrainingError

    prepare_new(order.spec, order.words, seeds[0], order.steps)  # report problems once, before any process starts
    runs = SeedRuns(_command(order), jobs, is_silent=order.quiet or order.as_json)
    results, exit_code = runs.train(seeds)
    if order.as_json:
        typer.echo(json.dumps(results))
    if exit_code:
        raise typer.Exit(exit_code)
    failed = [str(result["seed"]) for result in results if result["state"] != "finished"]
    if failed:
        raise TrainingError(
            f"Seed{'s' if len(failed) > 1 else ''} {', '.join(failed)} did not finish.",
            f"See run.log below {order.runs_dir}.",
        )


def _command(order: Order) -> list[str]:
    """The command line for one of several seeds, without the seed."""
    options = {"--steps": order.steps, "--init-from": order.init_from, "--init-pattern": order.init_pattern}
    given = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    command = [sys.executable, "-P", "-m", "reverie", "train", order.spec, *order.words]  # -P: not from this folder
    return [*command, "--runs-dir", str(order.runs_dir), *given]


def _show_plan(spec: str, words: list[str], seeds: list[int | None], steps: int | None, as_json: bool) -> None:
    """Print a plan per seed. As JSON, one plan is an object and several are a list, as for the results of training."""
    from reverie.config.pipeline import prepare_new
    from reverie.preflight.plan import make_plan, plan_lines
    from reverie.preflight.summary import examine_config, report_lines, to_json

    plans, texts = [], []
    for seed in seeds:
        prepared = prepare_new(spec, words, seed, steps)
        facts, notes = examine_config(prepared.config, prepared.specs), prepared.composed.notes
        plans.append({**make_plan(prepared.config), "notes": notes, "preflight": to_json(facts)})
        texts.append("\n".join([*plan_lines(plans[-1]), *notes, *report_lines(facts)]))
    if as_json:
        typer.echo(json.dumps(plans if len(plans) > 1 else plans[0]))
    else:
        typer.echo("\n\n".join(texts))


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of a run. A closed terminal is no error."""
    with suppress(OSError):
        typer.echo(json.dumps(result) if as_json else _result_line(result))


def _result_line(result: dict[str, Any]) -> str:
    from reverie.log.metric_styles import format_number

    scores = {word: result.get(f"{word}_score") for word in ("best", "final")}
    shown = "".join(f"  {word} {format_number(score, 1)}" for word, score in scores.items() if score is not None)
    return f"{result.get('run') or 'seed ' + str(result['seed'])}  {result['state']}{shown}"


def _with_sweep(words: list[str]) -> list[str]:
    """The words, then the choices of a W&B sweep agent if one started this process."""
    if not os.environ.get("WANDB_SWEEP_ID"):
        return words
    from reverie.log.wandb import sweep_overrides

    is_sent = any(word.startswith("log.wandb") for word in words)
    return [*words, *sweep_overrides(os.environ), *([] if is_sent else ["log.wandb={}"])]


def parse_seeds(text: str | None) -> list[int]:
    """The seeds in the given order. Empty: use the seed of the config."""
    from reverie.core.errors import ConfigError

    if text is None:
        return []
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError as error:
        shown = text.strip() or '""'
        raise ConfigError(f"--seed {shown} is not a number or a list of numbers.", "Write --seed 1,2,3.") from error
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seed {text} names a seed twice: the two runs would be the same.", "Write --seed 1,2,3.")
    return seeds
