"""The ``reverie`` command. Every command imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import typer
from rich.console import Console

from reverie.cli import config, data, doctor, envs, evaluate, foresee, help, names, play, report, resume, train
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
app.command("train", epilog=names.preset_help())(train.train)
app.command("eval")(evaluate.evaluate)
app.command("play")(play.play)
app.command("record")(play.record)
app.command("foresee")(foresee.foresee)
app.command("resume")(resume.resume)
app.command("verify")(resume.verify)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.add_typer(config.app, name="config")
app.add_typer(envs.app, name="envs")
app.add_typer(data.app, name="data")


def run() -> None:
    """Run the command line; errors that a user can act on are shown without a stack trace."""
    with suppress(FileNotFoundError):  # the folder may be gone
        registry.search_in(os.getcwd())  # so that my_module.MyEnv is found where the command is typed
    try:
        with typed_in(COMMAND_LINE):
            app()
    except ReverieError as error:
        show_error(error)
        sys.exit(error.exit_code)
    finally:
        _let_go_of_closed_streams()


def show_error(error: ReverieError) -> None:
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    screen.print("[bold red]Error:[/] ", end="")
    screen.print(error.message, markup=False)
    if error.fix:
        screen.print(error.fix, markup=False, style="dim")


def _let_go_of_closed_streams() -> None:
    """Python ends with exit code 120 if what was printed last cannot be written, as into a closed terminal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
