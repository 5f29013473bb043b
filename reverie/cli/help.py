"""Readable help pages: no Python types beside options, ``-h`` for every command, ``--version``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

CONTEXT = {"help_option_names": ["-h", "--help"]}
_WORDS = {"<int>": "NUMBER", "<int range>": "NUMBER", "<float>": "NUMBER", "<float range>": "NUMBER", "<str>": "TEXT"}
_ABOUT_SETTINGS = "Settings are written KEY=VALUE, for example algorithm.learning_rate=0.1. The budget is --steps."
_ABOUT_SPECS = "Example: reverie train CartPole-v1:ppo. All environments: reverie envs list."
_WORDS |= {"<path>": "PATH", "<file>": "FILE", "<dir>": "DIR"}


class PlainGroup(TyperGroup):
    """The root command. Typer builds it last, when all other commands exist."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for command in _commands(self):
            for parameter in command.params:
                _simplify(parameter)
            _simplify_help_option(command)

    def get_params(self, ctx: Any) -> list[Any]:
        """Includes the options for shell completion, which typer adds last."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            _simplify(parameter)
        return parameters


class SettingsCommand(TyperCommand):
    """A command that takes settings as KEY=VALUE. Its usage errors show how to write them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _advise(error)
            raise


def _advise(error: Any) -> None:
    """Add advice to an unknown option or a missing argument. Typer's classes of these errors are private."""
    kind = type(error).__name__
    if kind == "NoSuchOption":
        error.possibilities = [name for name in error.possibilities or () if name != "--help"]
        error.message, error.possibilities = f"{error.format_message()}\n{_ABOUT_SETTINGS}", None
    elif kind == "MissingParameter":
        error.message = _ABOUT_SPECS


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from _commands(inner)


def _simplify(parameter: Any) -> None:
    """Show no type for flags and arguments, and a plain word for the values of options."""
    show = getattr(parameter, "display_type_rich", None)
    if show is None or getattr(parameter, "is_plain", False):
        return
    parameter.is_plain = True

    def display_type_rich(ctx: Any) -> str | None:
        if parameter.param_type_name == "argument" or getattr(parameter, "is_flag", False):
            return None
        shown: str = show(ctx=ctx)
        return _WORDS.get(shown, shown)

    parameter.display_type_rich = display_type_rich


def _simplify_help_option(command: Any) -> None:
    make = command.get_help_option

    def get_help_option(ctx: Any) -> Any:
        option = make(ctx)
        if option is not None:
            _simplify(option)
        return option

    command.get_help_option = get_help_option


def _show_version(wanted: bool) -> None:
    if wanted:
        import reverie

        typer.echo(f"reverie {reverie.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """One lab for world-model and model-free reinforcement learning."""
