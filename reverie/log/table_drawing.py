"""Draws the live table for a window of any size: progress bar, metrics in groups, alerts, running tasks.

If there is no room for all metrics, the most important ones are drawn and the others counted. The drawing never exceeds
the window.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reverie.log.progress import Task, in_words, task_line
from reverie.log.sparkline import ASCII_BLOCKS, BLOCKS, sparkline
from reverie.log.table_data import Alert, Metric, TableData

GROUP_COLOURS = {"evaluate": "magenta", "collect": "green", "update": "cyan", "replay": "yellow"}
OTHER_GROUP = "blue"
ALERT_COLOURS = {"info": "cyan", "warning": "yellow", "error": "bold red"}
ALERT_SIGNS = {"info": "i", "warning": "!", "error": "✗"}
TWO_COLUMNS_FROM = 140
GAP = 2
VALUE = 9
LONGEST_CURVE = 64
FEW = 6
"""Up to this number of metrics, one column is enough."""
ROOMY = 22
"""From this number of lines on, groups are separated by empty lines, even if that hides a few metrics."""
BORDER_FROM = 14
"""Lower windows have no border."""


def draw(
    board: TableData, width: int, height: int, tasks: Sequence[Task] = (), ascii_only: bool = False
) -> RenderableType:
    """The table in at most ``width`` columns and ``height`` lines."""
    has_border = height >= BORDER_FROM
    inner = width - 4 if has_border else width
    head = _head(board, inner)
    room = height - len(head) - (2 if has_border else 1)
    foot = [*(_alert_line(alert, inner) for alert in board.alerts), *map(task_line, tasks)][-max(0, room - 1) :]
    foot = foot if room > 1 else []
    lines = room - len(foot)
    halves = 2 if inner >= TWO_COLUMNS_FROM else 1
    chosen = board.chosen(lines * halves)
    groups = len({metric.group for metric in chosen})
    if halves == 1 and lines >= ROOMY:
        chosen = chosen if len(chosen) + groups <= lines else board.chosen(lines - groups)
    if len(chosen) <= min(lines, FEW):
        halves = 1
    body = _columns(chosen, halves, inner, roomy=lines, ascii_only=ascii_only)
    return _frame(board, [*head, *body, *foot], len(chosen), width, has_border)


def _frame(board: TableData, parts: list[RenderableType], shown: int, width: int, has_border: bool) -> RenderableType:
    hidden = board.hidden(shown)
    more = f"+ {hidden:,} more" if hidden else ""
    if not has_border:
        return Group(*parts, Text(more, style="dim")) if more else Group(*parts)
    title = Text.assemble(("reverie ", "bold white"), (board.title, "not bold cyan"), no_wrap=True, overflow="ellipsis")
    return Panel(
        Group(*parts), title=title, title_align="left", subtitle=Text(more, style="dim") if more else None,
        subtitle_align="right", box=box.ROUNDED, border_style="bright_black", width=width,
    )  # fmt: skip


def _head(board: TableData, width: int) -> list[RenderableType]:
    """The run's progress, as a bar and in words."""
    position = board.position
    words = [str(position.get("phase") or "starting")]
    words += [f"cycle {position['cycles']:,}"] if "cycles" in position else []
    is_repeating = position.get("frames", 0) > position.get("env_steps", 0)
    counted = ("frames", "updates", "episodes") if is_repeating else ("updates", "episodes")
    words += [f"{position[word]:,} {word}" for word in counted if word in position]
    line = Text("   ".join(words), style="dim", no_wrap=True, overflow="ellipsis")
    line.stylize("not dim bold cyan", 0, len(words[0]))
    elapsed = f"{in_words(time.perf_counter() - board.began)} so far"
    grid = Table.grid(padding=0)
    grid.add_column(width=width - len(elapsed) - 1, no_wrap=True, overflow="ellipsis")
    grid.add_row(line, Text(f" {elapsed}", style="dim"))
    return [_bar(board, board.seconds_left, width), grid]


def _bar(board: TableData, left: float | None, width: int) -> RenderableType:
    if board.fraction is None:
        return Text(board.budget.amount(board.done), style="bold", no_wrap=True)
    steps = f"{board.done:,} of {board.budget.total:,}" if width >= 60 else f"{board.done:,}"
    rest = f"{in_words(left)} left" if left is not None and board.fraction < 1 else ""
    cells: list[tuple[str, str]] = [(f"{board.fraction:4.0%}", "bold"), (steps, ""), (rest, "green")]
    cells = [(text, style) for text, style in cells if text]
    free = width - sum(len(text) + 2 for text, _ in cells)
    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(
        total=1, completed=board.fraction, width=max(5, free), complete_style="cyan", finished_style="green"
    )
    grid.add_row(bar, *(Text(text, style=style, no_wrap=True) for text, style in cells))
    return grid


def _columns(metrics: Sequence[Metric], halves: int, width: int, roomy: int, ascii_only: bool) -> list[RenderableType]:
    if not metrics:
        return []
    if halves == 1:
        return [_metric_table(metrics, width, roomy, ascii_only)]
    split = _column_split(metrics, roomy)
    grid = Table.grid(padding=(0, 3, 0, 0), expand=False)
    each = (width - 6) // 2
    grid.add_row(*(_metric_table(half, each, roomy, ascii_only) for half in (metrics[:split], metrics[split:])))
    return [grid]


def _column_split(metrics: Sequence[Metric], lines: int) -> int:
    """Index of the first metric in the second column: the start of a group if one is near the middle."""
    middle = math.ceil(len(metrics) / 2)
    starts = [i + 1 for i, (one, other) in enumerate(pairwise(metrics)) if one.group != other.group]
    fitting = [start for start in starts if max(start, len(metrics) - start) <= lines]
    near = [start for start in fitting if abs(start - middle) <= max(1, len(metrics) // 6)]
    return min(near, key=lambda start: abs(start - middle), default=middle)


def _metric_table(metrics: Sequence[Metric], width: int, roomy: int, ascii_only: bool) -> Table:
    """One line per metric. Each group is named once, and separated by an empty line if there is room."""
    sizes = Counter(metric.group for metric in metrics)
    is_spaced = roomy >= len(metrics) + len(sizes)
    layout = _Layout.fitting(metrics, width)
    table = Table.grid(padding=(0, GAP, 0, 0))
    for wide, align in layout.columns():
        table.add_column(width=wide, justify=align, no_wrap=True, overflow="ellipsis")
    previous = ""
    for metric in metrics:
        is_first = metric.group != previous
        if is_spaced and is_first and (not previous or max(sizes[previous], sizes[metric.group]) > 1):
            table.add_row()
        cells = _cells(metric, is_first, layout.curve, ascii_only)
        table.add_row(*cells if layout.has_best else (*cells[:4], cells[5]))
        previous = metric.group
    return table


@dataclass(frozen=True)
class _Layout:
    """Widths of the columns: group, name, value, arrow, best, curve."""

    group: int
    name: int
    curve: int
    has_best: bool

    @classmethod
    def fitting(cls, metrics: Sequence[Metric], width: int) -> _Layout:
        group = min(12, max(len(metric.group) for metric in metrics))
        has_best = width >= 68
        fixed = group + VALUE + 1 + 4 * GAP + (VALUE + 2 + GAP if has_best else 0)
        longest = max(len(metric.label) for metric in metrics)
        name = max(4, min(longest, 32, width - fixed - 12))
        return cls(group, name, max(1, min(LONGEST_CURVE, width - fixed - name)), has_best)

    def columns(self) -> list[tuple[int, Literal["left", "right"]]]:
        best: list[tuple[int, Literal["left", "right"]]] = [(VALUE + 2, "left")] if self.has_best else []
        return [(self.group, "left"), (self.name, "left"), (VALUE, "right"), (1, "left"), *best, (self.curve, "left")]


def _cells(metric: Metric, is_first: bool, curve: int, ascii_only: bool) -> list[Text]:
    style = metric.style
    colour = GROUP_COLOURS.get(metric.group.partition("_")[0], OTHER_GROUP)
    value_style = f"bold {colour}" if style.highlight else ""
    line = sparkline(metric.trend.points, curve, ASCII_BLOCKS if ascii_only else BLOCKS)
    return [
        Text(metric.group if is_first else "", style=colour),
        Text(metric.label, style="bold" if style.highlight else ""),
        Text(style.format(metric.value), style=value_style if math.isfinite(metric.value) else "bold red"),
        _arrow(metric, ascii_only),
        _best(metric, ascii_only),
        Text(line, style=colour if style.highlight else f"dim {colour}"),
    ]


def _best(metric: Metric, ascii_only: bool) -> Text:
    """The best value so far, of metrics with a better direction. Bright while the newest value is the best."""
    if metric.style.better == "neither" or not math.isfinite(metric.best):
        return Text()
    star = "* " if ascii_only else "★ "
    return Text(star + metric.style.format(metric.best), style="yellow" if metric.value == metric.best else "dim")


def _arrow(metric: Metric, ascii_only: bool) -> Text:
    """The metric's direction: green if it improves, red if it gets worse."""
    direction = metric.trend.direction()
    sign = ("v ^" if ascii_only else "▼ ▲")[direction + 1]
    if metric.style.better == "neither" or not direction:
        return Text(sign, style="dim")
    return Text(sign, style="green" if (direction > 0) == (metric.style.better == "higher") else "red")


def _alert_line(alert: Alert, width: int) -> Text:
    colour = ALERT_COLOURS.get(alert.level, "yellow")
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{ALERT_SIGNS.get(alert.level, '!')} ", style=colour)
    text.append(" ".join(alert.text.split()), style=colour)
    text.append(f"  at {alert.position:,}", style="dim")
    text.truncate(width, overflow="ellipsis")
    return text
