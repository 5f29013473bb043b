"""The ``reverie`` command. Commands import what they need when they run, so help is instant."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import typer
from rich.console import Console

from reverie.cli import (
    analyze,
    compare,
    config,
    data,
    doctor,
    envs,
    evaluate,
    export,
    foresee,
    help,
    names,
    new,
    play,
    report,
    resume,
    runs,
    smoke,
    train,
)
from reverie.config.typed import COMMAND_LINE, typed_in
from reverie.core import registry
from reverie.core.errors import ReverieError

app = typer.Typer(
    name="reverie",
    cls=help.PlainGroup,
    context_settings=help.CONTEXT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.callback()(help.root)
app.command("train", cls=help.SettingsCommand, epilog=names.preset_help())(train.train)
app.command("eval")(evaluate.evaluate)
app.command("play")(play.play)
app.command("record")(play.record)
app.command("foresee")(foresee.foresee)
app.command("resume", cls=help.SettingsCommand)(resume.resume)
app.command("verify")(resume.verify)
app.command("report")(report.report)
app.command("smoke")(smoke.smoke)
app.command("compare")(compare.compare)
app.command("analyze")(analyze.analyze)
app.command("export")(export.export)
app.command("new")(new.new)
app.command("doctor")(doctor.doctor)
app.add_typer(runs.app, name="runs")
app.add_typer(config.app, name="config")
app.add_typer(envs.app, name="envs")
app.add_typer(data.app, name="data")


def run() -> None:
    """Run the command line. Errors that the user can fix are shown without a stack trace."""
    with suppress(FileNotFoundError):  # the current folder may have been deleted
        registry.search_in(os.getcwd())  # finds my_module.MyEnv in the current folder
    try:
        with typed_in(COMMAND_LINE):
            app()
    except ReverieError as error:
        show_error(error)
        sys.exit(error.exit_code)
    finally:
        _detach_closed_streams()


def show_error(error: ReverieError) -> None:
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    screen.print("[bold red]Error:[/] ", end="")
    screen.print(error.message, markup=False)
    if error.fix:
        screen.print(error.fix, markup=False, style="dim")


def _detach_closed_streams() -> None:
    """Prevent exit code 120, which Python uses if it cannot flush its output, for example to a closed terminal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
