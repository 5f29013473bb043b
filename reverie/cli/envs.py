"""``reverie envs``: list, show and test environments, or check your own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reverie.cli import env_page, names, smoke
from reverie.cli.options import Json
from reverie.core.wording import count

if TYPE_CHECKING:
    from reverie.config.catalogue import EnvEntry, SuiteEntry
    from reverie.envs.check import Finding

EnvName = Annotated[
    str,
    typer.Argument(
        metavar="ENV", help="A preset, a Gymnasium id or my_module.MyEnv.", autocompletion=names.complete_env
    ),
]
app = typer.Typer(no_args_is_help=True, help="List, show and test environments, or check your own.")


@app.command("list")
def list_command(
    filter: Annotated[
        str, typer.Argument(metavar="TEXT", help="Show only envs whose name, suite or summary contains this.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List envs with presets, suites and what installs them, and registered Gymnasium ids.

    All ids of a suite are listed if you name it, or the beginning of its ids.

    Example: reverie envs list atari
    """
    from reverie.config.catalogue import list_envs, list_suites

    entries = list_envs(filter)
    if as_json:
        typer.echo(json.dumps([entry.to_json() for entry in entries], indent=2))
    elif entries:
        _print_entries(entries, list_suites(filter))
    else:
        typer.echo(f"No environment matches '{filter}'. `reverie envs list` shows all.")


@app.command("show")
def show_command(
    env: EnvName,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture of the env to this PNG file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show an env: what it is about, its spaces, its variants and how long they train, and a picture.

    A terminal shows the picture too.

    Example: reverie envs show MiniGrid-DoorKey-5x5-v0 --picture door.png
    """
    from reverie.config.env_facts import env_facts

    facts = env_facts(env)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        env_page.print_facts(facts)
    if facts["install"]:
        raise typer.Exit
    if picture is not None or (Console().is_terminal and not as_json):
        env_page.show_picture(env, picture, as_json)


@app.command("smoke")
def smoke_command(
    filter: Annotated[
        str, typer.Argument(metavar="TEXT", help="Test all envs that `envs list TEXT` shows, not one per suite.")
    ] = "",
    steps: Annotated[int, typer.Option(min=10, help="Random steps after the warm-up.")] = 1000,
    every: Annotated[bool, typer.Option("--all", help="Test every installed env, not one per suite.")] = False,
    as_json: Json = False,
) -> None:
    """Play random actions in installed envs and check what comes back. Exits with code 1 if an env fails.

    Checks: no NaN, no black frames, episodes end at their time limit, memory does not keep growing.

    Example: reverie envs smoke mujoco
    """
    smoke.smoke_envs(filter, steps, every, as_json)


@app.command("pictures")
def pictures_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The PNG file to write.")],
    filter: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only suites whose name contains this.")] = "",
    other: Annotated[
        Path | None,
        typer.Option("--python", metavar="PYTHON", help="Ask this Python for suites that are missing here."),
    ] = None,
) -> None:
    """Write a contact sheet with a picture of each installed suite that renders.

    Suites that cannot be installed together come from two Python environments.

    Example: reverie envs pictures suites.png --python .venv-envs-pygame/bin/python
    """
    env_page.write_contact_sheet(file, filter, other)


@app.command("check")
def check_command(
    env: EnvName,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE...]", help="Settings, for example env.kwargs.size=5.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 3,
    as_json: Json = False,
) -> None:
    """Check an environment for common mistakes. Exits with code 1 if there is an error.

    Example: reverie envs check my_module.MyEnv
    """
    from reverie.config.catalogue import find_env_config
    from reverie.envs.check import check_env
    from reverie.log.progress import quiet_progress

    with quiet_progress(as_json):
        findings = check_env(find_env_config(env, overrides or ()), episodes)
    if as_json:
        typer.echo(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        _print_findings(env, findings)
    raise typer.Exit(int(any(finding.severity == "error" for finding in findings)))


def _print_entries(entries: Sequence[EnvEntry], suites: Sequence[SuiteEntry]) -> None:
    presets = [entry for entry in entries if entry.source == "preset"]
    others = [entry for entry in entries if entry.source != "preset"]
    console = Console()
    if presets:
        console.print(_preset_table(presets))
        console.print("Train with a preset: reverie train <name>:<variant>\n", style="dim", highlight=False)
    if suites:
        console.print(_suite_table(suites))
        console.print("All ids of a suite: reverie envs list <suite>\n", style="dim", highlight=False)
    if others:
        console.print("[bold]Other registered ids[/bold]")
        console.print(_id_table(others))


def _preset_table(entries: Sequence[EnvEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Name", no_wrap=True)
    table.add_column("Variants")
    table.add_column("Solved at", justify="right")
    table.add_column("Description")
    for entry in entries:
        solved = "" if entry.solved_at is None else f"{entry.solved_at:g}"
        missing = f" [yellow]Not installed: {escape(entry.install)}[/]" if entry.install else ""
        table.add_row(entry.name, ", ".join(entry.variants), solved, escape(entry.summary) + missing)
    return table


def _suite_table(suites: Sequence[SuiteEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Suite", "Ids", "Installed, or install with"):
        table.add_column(name)
    for suite in suites:
        state = f"[yellow]{escape(suite.install)}[/]" if suite.install else "[green]installed[/]"
        table.add_row(suite.name, escape(", ".join(suite.ids)), state)
    return table


def _id_table(entries: Sequence[EnvEntry]) -> Table:
    """The ids of each suite, below the variants that they share. Ids without a known suite come last."""
    ids: dict[str, list[str]] = {}
    variants: dict[str, tuple[str, ...]] = {}
    for entry in sorted(entries, key=lambda entry: (not entry.suite, entry.suite)):
        ids.setdefault(entry.suite, []).append(entry.name)
        variants[entry.suite] = entry.variants
    table = Table(box=None, pad_edge=False, show_header=False)
    for suite, names_of_suite in ids.items():
        if variants[suite]:
            table.add_row("", f"[dim]train with :{', :'.join(variants[suite])}[/dim]")
        table.add_row(suite or "others", ", ".join(names_of_suite))
    return table


def _print_findings(env: str, findings: Sequence[Finding]) -> None:
    console = Console()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        table.add_row(f"[{colour}]{finding.severity}[/{colour}]", escape(finding.message))
        if finding.fix:
            table.add_row("", f"[dim]{escape(finding.fix)}[/dim]")
    errors = sum(finding.severity == "error" for finding in findings)
    if findings:
        console.print(table, highlight=False)
        console.print(f"{env}: {count(errors, 'error')}, {count(len(findings) - errors, 'warning')}.", highlight=False)
    else:
        console.print(f"{env}: no problems found.", style="green", highlight=False)
