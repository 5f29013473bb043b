"""``reverie runs``: find, show, label and compare the folders of runs. None of it loads torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli import clean, names, repeat
from reverie.cli.options import Json, RunsDir, RunWords
from reverie.cli.text_table import table_lines, terminal_width

if TYPE_CHECKING:
    from reverie.store.labels import Labels
    from reverie.store.run_summary import RunSummary

app = typer.Typer(help="Find, show, label and clean runs.", no_args_is_help=True)
app.command("clean")(clean.clean)
app.command("restore")(clean.restore)
app.command("repeat")(repeat.repeat)

MOST_ROWS = 30
OneRun = Annotated[str, typer.Argument(metavar="RUN", help="The run.", autocompletion=names.complete_run)]
SomeRuns = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run, or a pattern such as 'CartPole*'.", autocompletion=names.complete_run),
]
Tags = Annotated[list[str], typer.Argument(metavar="TAG...", help="Words such as paper or lr-sweep.")]


@app.command("list")
def list_runs(
    words: RunWords = None,
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="Sort by this: the highest or newest first.")] = "created",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort in the opposite order.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"Rows to show, 0 for all. Default: {MOST_ROWS}, with --json all.")
    ] = None,
    columns: Annotated[
        str, typer.Option(metavar="NAME,...", help="Columns: filter keys and settings, e.g. name,best,algorithm.gamma.")
    ] = "",
    group: Annotated[
        str, typer.Option(metavar="NAME,...", help="Fold runs by these columns, e.g. env,algorithm: IQM and interval.")
    ] = "",
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs that all filters accept.

    Example: reverie runs list algorithm=ppo 'env=CartPole*' 'best>450' since=7d --sort best

    A filter is KEY, one of = != < <= > >=, and a value. Values with commas mean "or", and a key with a dot is a
    setting: algorithm.gamma=0.99. Use quotes around < and >.
    """
    from reverie.core.errors import ConfigError
    from reverie.lab.columns import check_column, parse_columns, sort_by
    from reverie.lab.find import find_runs

    shown, folded, by = parse_columns(columns), parse_columns(group), check_column(sort)
    if folded and (shown or reverse or by != "created"):
        fix = "Leave out --columns, --sort and --reverse; --limit works."
        raise ConfigError("--group has its own columns and order: the highest score first.", fix)
    runs = find_runs(words or (), runs_dir)
    if folded:
        _print_groups(runs, folded, limit, as_json)
        return
    found = sort_by(runs, by, reverse)
    most = limit if limit is not None else 0 if as_json else MOST_ROWS
    kept = found[:most] if most else found
    if as_json:
        typer.echo(json.dumps([run.to_json() for run in kept]))
    else:
        _print_runs(kept, shown, len(found), runs_dir)


@app.command()
def show(run: OneRun = "@last", runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show a run: its state and scores, what differs from its preset, files and sizes, and where it came from."""
    from reverie.lab.find import find_one
    from reverie.lab.run_details import read_details

    details = read_details(find_one(run, runs_dir), runs_dir)
    typer.echo(json.dumps(details.to_json()) if as_json else "\n".join(details.lines()))


@app.command()
def tag(run: SomeRuns, tags: Tags, runs_dir: RunsDir = Path("runs")) -> None:
    """Give tags to a run, or to all runs that match a pattern. Find them with: reverie runs list tag=TAG

    Example: reverie runs tag 'CartPole*' paper
    """
    _label(run, runs_dir, lambda labels: labels.with_tags(*tags))


@app.command()
def untag(run: SomeRuns, tags: Tags, runs_dir: RunsDir = Path("runs")) -> None:
    """Remove tags from a run, or from all runs that match a pattern."""
    _label(run, runs_dir, lambda labels: labels.without_tags(*tags))


@app.command()
def note(
    run: OneRun,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help='The new note; "" removes it.')] = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write a note about a run, or print it."""
    from reverie.lab.find import find_one
    from reverie.store.labels import change_labels, read_labels

    found = find_one(run, runs_dir)
    labels = read_labels(found.path) if text is None else change_labels(found.path, lambda old: old.with_note(text))
    typer.echo(labels.note or f"{found.name} has no note.")


@app.command()
def diff(left: OneRun, right: OneRun, runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show in what two runs differ: settings, code, versions, machine and scores."""
    from reverie.lab.find import find_one
    from reverie.lab.run_diff import compare_folders

    sides = [find_one(name, runs_dir) for name in (left, right)]
    found = compare_folders(*sides)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    for title, rows in (("Settings", found.settings), ("Code, machine and scores", found.facts)):
        typer.echo(f"\n{title}" if rows else f"\n{title}: no differences.")
        if rows:
            head = ["", *(side.name for side in sides)]
            cells = [list(row.texts()) for row in rows]
            typer.echo("\n".join(table_lines(head, cells, width=terminal_width())))


@app.command()
def index(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Read all runs again.")] = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Bring the index of the runs up to date and print where it is. It is a cache: deleting it loses nothing."""
    from reverie.lab import run_index
    from reverie.lab.index_file import index_path

    runs = (run_index.rebuild if rebuild else run_index.indexed_runs)(runs_dir)
    typer.echo(f"{len(runs):,} runs in '{runs_dir}', index: {index_path(runs_dir)}")


def _print_runs(runs: list[RunSummary], shown: list[str], total: int, runs_dir: Path) -> None:
    from reverie.lab.columns import DEFAULT, MISSING, is_numeric, show

    if not runs:
        typer.echo(f"No runs in '{runs_dir}' match." if runs_dir.is_dir() else f"There is no folder '{runs_dir}'.")
        return
    columns = shown or list(DEFAULT)
    rows = [[show(run, column) for column in columns] for run in runs]
    if not shown and all(row[-1] == MISSING for row in rows):  # no run has tags
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    numeric = {number for number, column in enumerate(columns) if is_numeric(column)}
    typer.echo("\n".join(table_lines(columns, rows, numeric, terminal_width())))
    if len(runs) < total:
        typer.echo(f"{len(runs)} of {total:,} runs. All of them: --limit 0", err=True)


def _print_groups(runs: list[RunSummary], columns: list[str], limit: int | None, as_json: bool) -> None:
    from reverie.lab.seed_groups import HEAD, fold

    groups = fold(runs, columns)[: limit or None]
    if as_json:
        typer.echo(json.dumps([group.to_json(columns) for group in groups]))
        return
    rows = [[*group.keys, *group.texts()] for group in groups]
    numeric = set(range(len(columns), len(columns) + len(HEAD)))
    typer.echo("\n".join(table_lines([*columns, *HEAD], rows, numeric, terminal_width())))


def _label(run: str, runs_dir: Path, change: Callable[[Labels], Labels]) -> None:
    from reverie.lab.find import find_runs
    from reverie.store.labels import change_labels

    for found in find_runs([run], runs_dir):
        labels = change_labels(found.path, change)
        typer.echo(f"{found.name}: {', '.join(labels.tags) or 'no tags'}")
