"""``reverie config``: show the config of a run, explain keys, and compare two configs."""

from __future__ import annotations

import glob
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reverie.cli import names
from reverie.cli.options import Json, RunsDir, Words

if TYPE_CHECKING:
    from reverie.config.compose import Composed
    from reverie.config.path_names import PathNames
    from reverie.config.tree import Tree

app = typer.Typer(help="Show, explain and compare configs.", no_args_is_help=True)

Side = Annotated[
    str,
    typer.Argument(help="ENV:VARIANT, a run's name or its folder.", autocompletion=names.complete_run_or_spec),
]


@app.command()
def show(
    spec: Side,
    words: Words = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show every value of a config with its source, for ENV:VARIANT or for an existing run.

    Values that depend on the machine stay 'auto' for ENV:VARIANT. They are resolved when a run is created.
    """
    is_run = _is_run(spec, runs_dir)
    shown = _read_run(spec, words or [], runs_dir) if is_run else _compose_checked(spec, words or [])
    if as_json:
        typer.echo(json.dumps({"config": shown.tree, "sources": shown.sources, "notes": shown.notes}))
        return
    screen = Console()
    screen.print(_value_table(shown.tree, shown.sources))
    for note in shown.notes:
        screen.print(Text(f"Note: {note}", style="yellow"))


@app.command()
def explain(
    key: Annotated[
        str,
        typer.Argument(
            metavar="[KEY]",
            help="A key or its last word, a pattern (algorithm.*), a kind (ppo, mlp), ENV:VARIANT "
            "or my_module.MyClass. Default: all.",
        ),
    ] = "**",
    as_json: Json = False,
) -> None:
    """Print the meaning, type and default of keys, or all settings of a spec with their values.

    Examples: reverie config explain algorithm.gamma, reverie config explain CartPole-v1:ppo
    """
    from reverie.config.compose import compose
    from reverie.config.explain import explain as explain_keys
    from reverie.config.explain import explain_tree
    from reverie.config.sb3_names import NAMES

    if key in NAMES:
        _explain_name(key, as_json)
        return
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
    if len(entries) == 1 and (kinds := _kinds_in(entries[0]["type"])):
        screen.print(f"The settings of one kind: reverie config explain {kinds[0]}", style="dim")


@app.command()
def diff(left: Side, right: Side, runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show the values that differ between two runs or specs."""
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


def _explain_name(name: str, as_json: bool) -> None:
    """Print our key for a name of Stable-Baselines3, for each algorithm."""
    from reverie.config.presets import algorithm_names
    from reverie.config.sb3_names import NAMES, Ours, meaning

    kinds = [kind for kind in algorithm_names() if kind in NAMES[name] or "*" in NAMES[name]]
    found = {kind: meaning(name, kind) for kind in kinds}
    ours = {kind: each.key if isinstance(each, Ours) else None for kind, each in found.items()}
    if as_json:
        typer.echo(json.dumps([{"key": name, "ours": ours}]))
        return
    typer.echo(f"{name} is a name of Stable-Baselines3. Here it is called:")
    for kind, each in found.items():
        typer.echo(f"  {kind}: {each.key if isinstance(each, Ours) else 'no such setting: ' + each.reason}")


def _explanation(entry: dict[str, Any]) -> Group:
    from reverie.config.explain import REQUIRED

    kinds = f"  ({', '.join(entry['kinds'])})" if entry["kinds"] else ""
    default = "required" if entry["default"] == REQUIRED else f"default {_format(entry['default'])}"
    value = f"; in this config {_format(entry['value'])}" if "value" in entry else ""
    facts = f"{entry['type']}; {default}{value}"
    title = Text.assemble((entry["key"], "bold"), (kinds, "dim"))
    meaning = entry["meaning"].replace("``", "")
    return Group(
        title,
        *(Padding(text, (0, 0, 0, 2)) for text in (Text(meaning), Text(facts, style="dim"))),
    )


def _kinds_in(type_text: str) -> list[str]:
    """The kinds that the type of a component's key lists."""
    group, separator, kinds = type_text.partition(", kinds: ")
    return kinds.split(", ") if separator and " " not in group else []


def _is_run(name: str, runs_dir: Path) -> bool:
    """Whether this names a run, perhaps by the beginning of its name, rather than ENV:VARIANT."""
    is_path = Path(name).exists()
    return is_path or name.startswith("@") or any(runs_dir.glob(f"{glob.escape(name)}*/config.yaml"))


def _compose_checked(spec: str, words: list[str]) -> Composed:
    """The complete, checked values of a new run."""
    from reverie.config.pipeline import prepare_new
    from reverie.config.resolve import resolve_numbers

    composed = prepare_new(spec, words).composed
    composed.tree = resolve_numbers(composed.tree, composed.sources)
    return composed


def _read_run(name: str, words: list[str], runs_dir: Path) -> Composed:
    """The values of an existing run, all from its own file."""
    from reverie.config.compose import Composed
    from reverie.config.path_names import named_leaves
    from reverie.core.errors import ConfigError

    if words:
        fix = f"Leave out {' '.join(words)}, or name ENV:VARIANT instead of the run."
        raise ConfigError(f"'{name}' names an existing run, whose config cannot be changed here.", fix)
    tree = _read_side(name, runs_dir)
    return Composed(tree, {key: "config.yaml" for key, _ in named_leaves(tree)})


def _read_side(name: str, runs_dir: Path) -> Tree:
    from reverie import api
    from reverie.config.fields import fill_defaults
    from reverie.config.files import read_tree
    from reverie.core.errors import ForeignCodeError

    if ":" in name and not name.startswith("@") and not Path(name).exists():
        from reverie.config.compose import compose
        from reverie.config.resolve import resolve_numbers

        return resolve_numbers(compose(name).tree)
    from reverie.store.run_folder import find_run

    run = find_run(name, runs_dir)
    tree = read_tree(run / "config.yaml")
    try:
        with api.trusting(False, run):
            return fill_defaults(tree)
    except ForeignCodeError:
        return tree  # reading the defaults of a stranger's classes would run their code


def _value_table(tree: Tree, sources: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", style="dim")
    from reverie.config.path_names import PathNames

    rows = _Rows(table, tree, PathNames(tree), sources)
    rows.add((), 0)
    return table


@dataclass
class _Rows:
    """Fills a table with one line per value, indented like YAML, with phases and hooks by name."""

    table: Table
    tree: Tree
    names: PathNames
    sources: dict[str, str]

    def add(self, path: tuple[str, ...], depth: int) -> None:
        """Add what is below a path."""
        from reverie.config.tree import children, get, is_schedule
        from reverie.config.validate import source_of

        for name, value in children(get(self.tree, path)):
            inner = (*path, name)
            if name == "hooks" and children(value):  # hooks follow the settings of their phase
                self.add(inner, depth)
                continue
            key = self.names.shown(inner)
            label = "  " * depth + key.rpartition(".")[2]
            inner = self.names.below.get(inner, inner)
            if children(get(self.tree, inner)) and not is_schedule(value):
                self.table.add_row(Text(label, style="bold"), "", "")
                self.add(inner, depth + 1)
            else:
                source = source_of(self.sources, key).replace("presets/", "", 1)
                self.table.add_row(Text(label), Text(_format(get(self.tree, inner))), Text(source))


def _format(value: Any) -> str:
    """A value as one types it on the command line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_format(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format, value)) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)
