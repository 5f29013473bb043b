"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reverie.cli import names

LARGEST_NUMBER = 10**15
"""Whole numbers up to here are exact as floats."""


def whole_number(text: str) -> int:
    """Parse a positive whole number, also in the forms 1e5 and 100_000."""
    try:
        number = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not a number.") from error
    if not number.is_integer() or not 1 <= number <= LARGEST_NUMBER:
        raise typer.BadParameter(f"'{text}' is not a whole number from 1 to {LARGEST_NUMBER:.0e}.")
    return int(number)


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing while training.")]
RunsDir = Annotated[Path, typer.Option(help="Folder of the runs.")]
RunWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN...] [FILTER...]",
        help="Runs, patterns such as 'CartPole*', or filters: algorithm=ppo 'best>450' tag=paper since=7d.",
        autocompletion=names.complete_run,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        parser=whole_number, metavar="NUMBER", help="Budget in env steps, such as 1e5, rounded up to whole cycles."
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow a run made elsewhere to import its own code (dotted paths).")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PRESET...] [KEY=VALUE...]",
        help="Presets, then single settings. Later ones win.",
        autocompletion=names.complete_word,
    ),
]
