"""``reverie envs smoke`` and ``reverie smoke``: try every env and every preset briefly, and say which ones fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reverie.cli.options import Json
from reverie.core.wording import count

if TYPE_CHECKING:
    from reverie.config.catalogue import EnvEntry
    from reverie.envs.smoke import SmokeResult

COLOURS = {"passed": "green", "failed": "red", "not installed": "yellow"}


@dataclass(frozen=True)
class Outcome:
    """One line of the summary. ``detail`` has the numbers, the problems, or what to install."""

    name: str
    state: str
    detail: str


def smoke_envs(filter: str, steps: int, every: bool, as_json: bool) -> None:
    """Test the example of each suite, or all envs that the filter shows."""
    from reverie.config.catalogue import example_entries, find_env_config, list_envs
    from reverie.envs.smoke import smoke_test
    from reverie.log.progress import progress, quiet_progress

    entries = list_envs(filter, every_id=every) if filter or every else example_entries()
    outcomes = []
    with quiet_progress(as_json), progress("smoke test of envs", total=len(entries)) as task:
        for entry in task.count(entries):
            task.text = f"smoke test: {entry.name}"
            result = None if entry.install else smoke_test(find_env_config(entry.name), steps)
            outcomes.append(_env_outcome(entry, result))
    report(outcomes, as_json, f"No environment matches '{filter}'. `reverie envs list` shows all.")


def _env_outcome(entry: EnvEntry, result: SmokeResult | None) -> Outcome:
    if result is None:
        return Outcome(entry.name, "not installed", entry.install)
    if result.problems:
        return Outcome(entry.name, "failed", "; ".join(result.problems))
    frame = f"frames {'x'.join(map(str, result.frame[:2]))}" if result.frame else "no frames"
    growth = "" if result.growth is None else f", memory {result.growth / 1e6:+.1f} MB"
    return Outcome(entry.name, "passed", frame + growth)


def smoke(
    filter: Annotated[str, typer.Argument(metavar="TEXT", help="Only presets whose ENV:VARIANT contains this.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="Env steps per preset.")] = 300,
    as_json: Json = False,
) -> None:
    """Train every preset briefly, with small networks. Exits with code 1 if one fails.

    Presets of a suite are tried on its example. Runs are made in a temporary folder and deleted.

    Example: reverie smoke CartPole --steps 500
    """
    from reverie.log.progress import progress, quiet_progress
    from reverie.runs.smoke import shipped_presets, train_briefly

    presets = [preset for preset in shipped_presets() if filter.lower() in preset.spec.lower()]
    outcomes = []
    with quiet_progress(as_json), progress("training presets", total=len(presets)) as task:
        for preset in task.count(presets):
            task.text = f"training {preset.spec}"
            if preset.install:
                outcomes.append(Outcome(preset.spec, "not installed", preset.install))
                continue
            problem, detail = train_briefly(preset.spec, steps)
            outcomes.append(Outcome(preset.spec, "failed" if problem else "passed", problem or detail))
    report(outcomes, as_json, f"No preset matches '{filter}'. `reverie envs list` shows all.")


def report(outcomes: Sequence[Outcome], as_json: bool, if_none: str) -> None:
    """Print the summary. Exit code 1 if something failed or nothing was found."""
    failed = [outcome.name for outcome in outcomes if outcome.state == "failed"]
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    elif outcomes:
        _print(outcomes, failed)
    else:
        typer.echo(if_none)
    raise typer.Exit(int(bool(failed) or not outcomes))


def _print(outcomes: Sequence[Outcome], failed: Sequence[str]) -> None:
    table = Table.grid(padding=(0, 2))
    for outcome in outcomes:
        state = f"[{COLOURS[outcome.state]}]{outcome.state}[/]"
        table.add_row(state, escape(outcome.name), escape(outcome.detail))
    console = Console(highlight=False)
    console.print(table)
    missing = sum(outcome.state == "not installed" for outcome in outcomes)
    passed = len(outcomes) - missing - len(failed)
    console.print(f"{count(passed, 'passed', 'passed')}, {len(failed)} failed, {missing} not installed.")
