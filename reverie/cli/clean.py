"""``reverie runs clean`` and ``reverie runs restore``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli.options import Json, RunsDir, RunWords
from reverie.core.wording import count

if TYPE_CHECKING:
    from reverie.lab.clean import Plan

MOST_ROWS = 30


def clean(
    runs: RunWords = None,
    keep_best: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Keep the runs with the highest scores of each env.")
    ] = 0,
    keep_recent: Annotated[
        str | None, typer.Option(metavar="30d", help="Keep runs that changed in this time (12h, 30d, 2w).")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="30d", help="Clean only runs without a change for this long.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Clean only failed runs.")] = False,
    keep_policies: Annotated[bool, typer.Option("--keep-policies", help="Keep the saved policies.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Free the space at once, without the trash.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    empty_trash: Annotated[bool, typer.Option("--empty-trash", help="Delete what the trash holds for good.")] = False,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """Remove checkpoints, replay data, policies, videos and event files of runs. Their configs and metrics stay.

    They move to a trash, from where `reverie runs restore` brings them back, until it is emptied.

    Example: reverie runs clean --keep-best 10 --keep-recent 30d --dry-run
    """
    from reverie.core.errors import ConfigError
    from reverie.lab.clean import Rules, plan_cleaning
    from reverie.lab.clean import clean as clean_runs
    from reverie.lab.find import find_runs

    if empty_trash:
        _empty(runs_dir, dry_run, yes, as_json)
        return
    rules = Rules(keep_best, _seconds(keep_recent), _seconds(older_than), failed, keep_policies)
    if not runs and rules == Rules(keep_policies=keep_policies):
        fix = "For example --keep-best 10, --keep-recent 30d, --older-than 30d, --failed, or the names of runs."
        raise ConfigError("This would clean all runs: say which ones.", fix)
    plan = plan_cleaning(find_runs(runs or (), runs_dir), rules)
    if not as_json:
        _show(plan, runs_dir)
    is_wanted = bool(plan.candidates) and not dry_run and (yes or _confirmed(now, plan, as_json))
    done = clean_runs(plan, now) if is_wanted else None
    if as_json:
        typer.echo(json.dumps(_as_json(plan, done.runs if done else [], done.problems if done else [])))
        return
    if done is not None:
        _report(done.runs, done.bytes, done.problems, now, runs_dir)
    if done is not None and done.problems:
        raise typer.Exit(1)


def restore(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs, by their names. Default: all in the trash.")
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """Bring back what `reverie runs clean` has moved to the trash.

    Example: reverie runs restore CartPole-v1-ppo-s1-1
    """
    from reverie.lab.clean import restore_runs

    restored = restore_runs(runs or (), runs_dir)
    typer.echo(json.dumps({"restored": restored}) if as_json else f"Restored: {', '.join(restored)}")


def _seconds(text: str | None) -> float | None:
    from reverie.lab.filter_values import read_duration

    if text is None:
        return None
    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


def _confirmed(now: bool, plan: Plan, as_json: bool) -> bool:
    if as_json:
        raise typer.BadParameter("--json cannot ask: add --yes or --dry-run.")
    what = "Delete this for good" if now else "Move this to the trash"
    return typer.confirm(f"{what} ({count(len(plan.candidates), 'run')})?")


def _empty(runs_dir: Path, dry_run: bool, yes: bool, as_json: bool) -> None:
    from reverie.lab.columns import show_age
    from reverie.machine.memory import size_text
    from reverie.store.trash import delete, freed_bytes, read_trash

    entries = read_trash(runs_dir)
    size = freed_bytes(entry.path for entry in entries)
    names = [entry.run.name for entry in entries]
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("--json cannot ask: add --yes or --dry-run.")
    if not as_json:
        for entry in entries[:MOST_ROWS]:
            parts = ", ".join(part.name for part in entry.parts)
            typer.echo(f"{entry.run.name}: {parts}, {show_age(entry.time)} in the trash")
        typer.echo(f"The trash of '{runs_dir}' holds parts of {count(len(entries), 'run')}: {size_text(size)}.")
    is_wanted = bool(entries) and not dry_run and (yes or typer.confirm("Delete them for good?"))
    if is_wanted:
        delete(entries)
    if as_json:
        typer.echo(json.dumps({"deleted": names if is_wanted else [], "in_trash": names, "bytes": size}))
    elif is_wanted:
        typer.echo(f"Freed {size_text(size)}.")


def _show(plan: Plan, runs_dir: Path) -> None:
    from reverie.cli.text_table import table_lines, terminal_width
    from reverie.lab.columns import show, show_age
    from reverie.machine.memory import size_text

    rows = [
        (candidate.run.name, candidate.run.status, show(candidate.run, "best"), show_age(candidate.run.changed),
         size_text(candidate.bytes), ", ".join(part.name for part in candidate.parts))
        for candidate in sorted(plan.candidates, key=lambda candidate: -candidate.bytes)
    ]  # fmt: skip
    if rows:
        head = ("run", "status", "best", "age", "frees", "what goes")
        typer.echo("\n".join(table_lines(head, rows[:MOST_ROWS], numeric=(2, 3, 4), width=terminal_width())))
    if len(rows) > MOST_ROWS:
        typer.echo(f"... and {len(rows) - MOST_ROWS:,} more")
    kept = "; ".join(f"{number:,} {reason}" for reason, number in plan.kept.items())
    typer.echo(f"{count(len(rows), 'run')} would free {size_text(plan.bytes)}. Configs and metrics stay."
               + (f"\nKept: {kept}." if kept else ""))  # fmt: skip
    _show_trash(runs_dir)


def _show_trash(runs_dir: Path) -> None:
    from reverie.machine.memory import size_text
    from reverie.store.trash import freed_bytes, read_trash

    entries = read_trash(runs_dir)
    if entries:
        size = size_text(freed_bytes(entry.path for entry in entries))
        held = count(len(entries), "run")
        typer.echo(f"The trash holds parts of {held}; emptying it frees {size}: reverie runs clean --empty-trash")


def _report(names: list[str], size: int, problems: list[str], now: bool, runs_dir: Path) -> None:
    from reverie.machine.memory import size_text
    from reverie.store.run_folder import runs_dir_option

    for problem in problems:
        typer.echo(problem, err=True)
    option = runs_dir_option(runs_dir)
    if now and names:
        typer.echo(f"Freed {size_text(size)} of {count(len(names), 'run')}.")
    elif names:
        typer.echo(f"Moved {size_text(size)} of {count(len(names), 'run')} to the trash.")
        typer.echo(f"Undo: reverie runs restore{option}. Free the space: reverie runs clean --empty-trash{option}")


def _as_json(plan: Plan, done: list[str], problems: list[str]) -> dict[str, object]:
    chosen = [
        {"run": candidate.run.name, "parts": [part.name for part in candidate.parts], "bytes": candidate.bytes}
        for candidate in plan.candidates
    ]
    return {"runs": chosen, "bytes": plan.bytes, "kept": dict(plan.kept), "cleaned": done, "problems": problems}
