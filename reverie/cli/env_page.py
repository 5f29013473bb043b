"""What ``reverie envs show`` and ``reverie envs pictures`` print and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from reverie.core.types import Array

WIDEST_PICTURE = 64


def print_facts(facts: dict[str, Any]) -> None:
    """Print the facts of :func:`reverie.config.env_facts.env_facts`, one per line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for name, text in _lines(facts):
        table.add_row(name, escape(text))
    Console(highlight=False).print(table)


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    means = facts["means"]
    lines = [
        ("env", facts["id"]), ("suite", facts["suite"]), ("about", facts["summary"]),
        ("observation", means["observation"]), *facts.get("observations", {}).items(),
        ("action", "; ".join(text for text in (means["actions"], facts.get("action", "")) if text)),
        ("reward", means["reward"]), ("solved at", _number(facts["solved_at"])),
        ("time limit", _number(facts.get("limit"))), ("env.obs", ", ".join(facts["forms"])),
        ("wrappers", ", ".join(facts.get("wrappers", ()))), ("not installed", facts["install"]),
    ]  # fmt: skip
    variants = [(f":{variant}", budget) for variant, budget in facts["variants"].items()]
    train = [] if variants else [("variants", "none: every algorithm trains with its defaults")]
    return [(name, text) for name, text in lines if text] + variants + train


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,g}"


def show_picture(env: str, file: Path | None, quiet: bool = False) -> None:
    """Write a picture of the env to the file, if there is one, else draw it in the terminal."""
    from PIL import Image

    from reverie.config.catalogue import find_env_config
    from reverie.core.errors import ConfigError
    from reverie.envs.pictures import take_picture
    from reverie.log.terminal_picture import draw_picture

    if file is not None:
        _check_name(file)
    try:
        picture: Array = take_picture(find_env_config(env))
    except ConfigError as error:
        if file is not None:
            raise
        typer.echo(f"No picture: {error.message}")
        return
    if file is None:
        console = Console(highlight=False)
        console.print(draw_picture(picture, min(WIDEST_PICTURE, console.width)))
        return
    Image.fromarray(picture).save(file)
    if not quiet:
        typer.echo(f"Picture: {file}")


def write_contact_sheet(file: Path, filter: str, other: Path | None) -> None:
    """Write a picture of the example of each suite that renders here, or in the Python environment ``other``.

    Says which suites are left out.
    """
    from reverie.config.catalogue import list_suites
    from reverie.core.errors import ReverieError
    from reverie.envs.pictures import save_sheet
    from reverie.envs.suites import SUITES
    from reverie.log.progress import progress

    _check_name(file)
    entries = {entry.name: entry for entry in list_suites() if filter.lower() in entry.name}
    suites = [suite for suite in SUITES if suite.name in entries and suite.example]
    pictures, without = [], []
    with progress("taking pictures", total=len(suites)) as task:
        for suite in task.count(suites):
            try:
                pictures.append((suite.example, _picture_of(suite.example, entries[suite.name].install, other)))
            except ReverieError as error:
                without.append(f"{suite.name}: {error.message}")
    if pictures:
        save_sheet(file, pictures)
    typer.echo(f"{len(pictures)} pictures: {file}" if pictures else "No pictures.")
    for line in without:
        typer.echo(f"  without {line}")
    raise typer.Exit(int(not pictures))


def _picture_of(env: str, install: str, other: Path | None) -> Array:
    """A picture from here, or from ``other`` if the env is not installed here. ConfigError if neither has it."""
    from reverie.config.catalogue import find_env_config
    from reverie.core.errors import ConfigError
    from reverie.envs.pictures import take_picture, take_picture_elsewhere

    if not install:
        return take_picture(find_env_config(env))
    picture = take_picture_elsewhere(other, env) if other is not None else None
    if picture is None:
        raise ConfigError(install)
    return picture


def _check_name(file: Path) -> None:
    from reverie.core.errors import ConfigError

    if file.suffix != ".png":
        raise ConfigError(f"'{file}' does not end with .png.", "Name a PNG file.")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"The folder of '{file}' does not exist.", f"mkdir -p {file.parent}")
