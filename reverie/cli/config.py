"""``reverie config``: see what a run would do, what a key means, and in what two runs differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from reverie.config.tree import Tree

app = typer.Typer(help="Show, explain and compare configs.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[PRESET...] [KEY=VALUE...]", help="Presets, then single settings.")
]
RunsDir = Annotated[Path, typer.Option(help="Where run folders are kept.")]
Side = Annotated[str, typer.Argument(help="ENV:VARIANT, a run's name or its folder.")]


@app.command()
def show(
    spec: Annotated[str, typer.Argument(metavar="ENV:VARIANT", help="For example CartPole-v1:ppo.")],
    words: Words = None,
    as_json: Json = False,
) -> None:
    """Show every value of a run and where it comes from.

    What depends on the machine stays 'auto' here; it is decided when a run is created.
    """
    from reverie.config.checks import check_config
    from reverie.config.compose import compose
    from reverie.config.resolve import resolve_numbers
    from reverie.config.validate import load_config

    composed = compose(spec, words or [])
    tree = resolve_numbers(composed.tree, composed.sources)
    check_config(load_config(tree, composed.sources), composed.sources)
    if as_json:
        typer.echo(json.dumps({"config": tree, "sources": composed.sources, "notes": composed.notes}))
        return
    screen = Console()
    screen.print(_value_table(tree, composed.sources))
    for note in composed.notes:
        screen.print(Text(f"Note: {note}", style="yellow"))


@app.command()
def explain(
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="A key, a name, a pattern (algorithm.*) or a spec.")
    ] = "**",
    as_json: Json = False,
) -> None:
    """Say what keys mean, of which type they are and what they are unless set."""
    from reverie.config.compose import compose
    from reverie.config.explain import explain as explain_keys
    from reverie.config.explain import explain_tree

    if ":" in key:
        pairs = explain_tree(compose(key).tree)
        entries = [{**entry.to_json(), "value": value} for entry, value in pairs]
    else:
        entries = [entry.to_json() for entry in explain_keys(key)]
    if as_json:
        typer.echo(json.dumps(entries))
        return
    screen = Console(highlight=False)
    for entry in entries:
        screen.print(_explanation(entry))


@app.command()
def diff(left: Side, right: Side, runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show in which values two runs, or two specs, differ."""
    from reverie.config.explain import diff as compare

    differences = compare(_read_side(left, runs_dir), _read_side(right, runs_dir))
    if as_json:
        typer.echo(json.dumps({entry.key: {"left": entry.left, "right": entry.right} for entry in differences}))
        return
    if not differences:
        typer.echo("No differences.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("key", no_wrap=True)
    for title in (left, right):
        table.add_column(title, overflow="fold")
    for entry in differences:
        table.add_row(*map(Text, (entry.key, _format(entry.left), _format(entry.right))))
    Console().print(table)


def _explanation(entry: dict[str, Any]) -> Group:
    kinds = f"  ({', '.join(entry['kinds'])})" if entry["kinds"] else ""
    value = f"here {_format(entry['value'])}, " if "value" in entry else ""
    facts = f"{entry['type']}; {value}unless set {_format(entry['default'])}"
    title = Text.assemble((entry["key"], "bold"), (kinds, "dim"))
    return Group(title, *(Padding(text, (0, 0, 0, 2)) for text in (Text(entry["meaning"]), Text(facts, style="dim"))))


def _read_side(name: str, runs_dir: Path) -> Tree:
    from reverie.config.fields import fill_defaults
    from reverie.config.files import read_tree

    if ":" in name and not Path(name).exists():
        from reverie.config.compose import compose
        from reverie.config.resolve import resolve_numbers

        return resolve_numbers(compose(name).tree)
    from reverie.runs.folder import find_run

    return fill_defaults(read_tree(find_run(name, runs_dir) / "config.yaml"))


def _value_table(tree: Tree, sources: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", style="dim")
    _add_rows(table, tree, "", sources, 0)
    return table


def _add_rows(table: Table, node: Any, key: str, sources: dict[str, str], depth: int) -> None:
    """One line per value, indented like YAML; lists of mappings show their numbers, which are their keys."""
    from reverie.config.tree import children, is_schedule
    from reverie.config.validate import source_of

    for name, value in children(node):
        path = f"{key}.{name}" if key else name
        label = "  " * depth + name
        if children(value) and not is_schedule(value):
            table.add_row(Text(label, style="bold"), "", "")
            _add_rows(table, value, path, sources, depth + 1)
        else:
            source = source_of(sources, path).replace("presets/", "", 1)
            table.add_row(Text(label), Text(_format(value)), Text(source))


def _format(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_format(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format, value)) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)
