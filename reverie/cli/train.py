"""``reverie train``."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

Spec = Annotated[str, typer.Argument(metavar="ENV:VARIANT", help="What to train on and how, e.g. CartPole-v1:ppo.")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[PRESET...] [KEY=VALUE...]", help="Presets, then single settings.")
]
RunsDir = Annotated[Path, typer.Option(help="Where run folders are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def train(
    spec: Spec,
    words: Words = None,
    seed: Annotated[str, typer.Option(help="One seed, or several as 1,2,3: a run each.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="How many seeds run at the same time.")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="Another budget in env steps.")] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing while training.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print what would happen and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train an agent and keep everything about it in a run folder.

    Example: reverie train CartPole-v1:ppo algorithm.gamma=0.99 --seed 1,2,3 --jobs 2
    """
    words = words or []
    seeds = _parse_seeds(seed)
    if dry_run:
        _show_plan(spec, words, seeds[0], steps, as_json)
    elif len(seeds) > 1:
        _train_many(spec, words, seeds, jobs, steps, runs_dir, quiet, as_json)
    else:
        _train_one(spec, words, seeds[0], steps, runs_dir, quiet, as_json)


def _train_one(
    spec: str, words: list[str], seed: int | None, steps: int | None, runs_dir: Path, quiet: bool, as_json: bool
) -> None:
    from reverie import api

    run = api.train(spec, *words, seed=seed, steps=steps, runs_dir=runs_dir, quiet=quiet or as_json)
    print_result({"run": run.name, "path": str(run.path), **run.status}, as_json)
    raise typer.Exit(run.exit_code)


def _train_many(
    spec: str, words: list[str], seeds: list[int | None], jobs: int, steps: int | None, runs_dir: Path,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """A process per seed: a crash of one leaves the others alone, and each run is what it would be by itself."""
    from reverie.api import make_config
    from reverie.core.errors import TrainingError

    make_config(spec, words, seeds[0], steps)  # complain once, before anything starts
    command = [sys.executable, "-m", "reverie", "train", spec, *words, "--runs-dir", str(runs_dir), "--json"]
    command += ["--steps", str(steps)] if steps is not None else []

    def start(seed: int | None) -> dict[str, Any]:
        done = subprocess.run([*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True)
        result = json.loads(done.stdout) if done.returncode == 0 else {"seed": seed, "state": "failed"}
        if not quiet and not as_json:
            print_result(result, as_json=False)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(start, seeds))
    if as_json:
        typer.echo(json.dumps(results))
    failed = [str(seed) for seed, result in zip(seeds, results, strict=True) if result["state"] != "finished"]
    if failed:
        raise TrainingError(f"Seeds {', '.join(failed)} did not finish.", f"Look into run.log below {runs_dir}.")


def _show_plan(spec: str, words: list[str], seed: int | None, steps: int | None, as_json: bool) -> None:
    from reverie.api import make_config
    from reverie.training.plan import make_plan, plan_lines

    plan = make_plan(make_config(spec, words, seed, steps))
    typer.echo(json.dumps(plan) if as_json else "\n".join(plan_lines(plan)))


def print_result(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    best, final = result.get("best_score"), result.get("final_score")
    scores = "".join(f"  {word} {score:.1f}" for word, score in (("best", best), ("final", final)) if score is not None)
    typer.echo(f"{result.get('run', 'seed ' + str(result.get('seed')))}  {result['state']}{scores}")


def _parse_seeds(text: str) -> list[int | None]:
    from reverie.core.errors import ConfigError

    if not text:
        return [None]
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seed {text} is not a number or a list of numbers.", "Write --seed 1,2,3.") from error
