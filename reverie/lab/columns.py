"""Columns of run lists: any filter key or setting, as values to sort by and as short text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from reverie.core.errors import ConfigError, nearest, one_screen
from reverie.lab.filters import KEYS, OTHER_NAMES
from reverie.lab.find import setting_values
from reverie.machine.memory import size_text
from reverie.store.run_summary import RunSummary

MISSING = "-"
LONGEST_TEXT = 60
DEFAULT = ("name", "status", "steps", "best", "final", "age", "tag")
UNITS = ((7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def check_column(name: str) -> str:
    """The column's name in full. ConfigError if there is no such column."""
    name = OTHER_NAMES.get(name.strip(), name.strip())
    if name not in KEYS and "." not in name:
        fix = f"{nearest(name, KEYS)} A setting has a dot: algorithm.gamma."
        raise ConfigError(f"Runs have no column '{name}'.", fix)
    return name


def parse_columns(text: str) -> list[str]:
    return [check_column(name) for name in text.split(",") if name.strip()]


def value_of(run: RunSummary, column: str) -> Any:
    """The value of a column. None if it is unknown, a tuple for several values."""
    if column in KEYS:
        value = getattr(run, KEYS[column].attribute)
        return None if value in ("", ()) else value
    values = setting_values(run, column)
    return (values[0] if len(values) == 1 else tuple(values)) if values else None


def show(run: RunSummary, column: str) -> str:
    """The value of a column as short text."""
    value = value_of(run, column)
    if value is None:
        return MISSING
    text = _TEXTS[column](value) if column in _TEXTS else _plain(value)
    text = one_screen(text).replace("\n", " ")
    return text if len(text) <= LONGEST_TEXT or column == "name" else f"{text[: LONGEST_TEXT - 1]}…"


def is_numeric(column: str) -> bool:
    """Whether a column is aligned to the right."""
    return column in KEYS and KEYS[column].read is not None


def sort_by(runs: Sequence[RunSummary], column: str, reverse: bool = False) -> list[RunSummary]:
    """The highest numbers and the latest dates first, text from A to Z, or the opposite. What is unknown comes last."""
    values = {run.path: value_of(run, column) for run in runs}
    known = [run for run in runs if values[run.path] is not None]
    numbers = [run for run in known if _is_number(values[run.path])]
    texts = [run for run in known if not _is_number(values[run.path])]
    numbers.sort(key=lambda run: values[run.path], reverse=not reverse)
    texts.sort(key=lambda run: show(run, column).lower(), reverse=reverse)
    return [*numbers, *texts, *(run for run in runs if values[run.path] is None)]


def show_score(value: float) -> str:
    """One decimal, two for small scores."""
    size = abs(value)
    return f"{value:.3g}" if size >= 1e7 else f"{value:,.{1 if size >= 10 or value == 0 else 2}f}"


def show_age(created: float) -> str:
    """How long ago: 40s, 5m, 3h, 2d, 6w."""
    seconds = max(0.0, time.time() - created)
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), (1, "s"))
    return f"{int(seconds / size)}{unit}"


def show_date(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return MISSING


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(_plain, value))
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TEXTS: dict[str, Callable[[Any], str]] = {
    "steps": "{:,}".format, "updates": "{:,}".format, "best": show_score, "final": show_score, "age": show_age,
    "created": show_date, "changed": show_date, "size": size_text, "commit": lambda commit: commit[:10],
    "problem": lambda problems: f"{len(problems)}: {problems[0]}",
}  # fmt: skip
