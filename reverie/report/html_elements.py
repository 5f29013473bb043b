"""HTML elements of the pages. All arguments are escaped here, except those named ``html``, ``body`` or ``chart``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from reverie.report.charts import NARROW, SMALL, WIDE, Chart, draw, legend_mark
from reverie.report.formatting import escape, group_title

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)
"""A second line of defence: the browser runs no script and loads nothing."""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 13 6 8l3 2 5-7' "
    "fill='none' stroke='%232a6fb5' stroke-width='2'/%3E%3C/svg%3E"
)


def page(title: str, body: str) -> str:
    """A whole, self-contained document."""
    style = resources.files("reverie.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="{ICON}">\n<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(title: str, html: str, note: str = "") -> str:
    """A section with a heading. Empty if there is no content."""
    lead = f'<p class="note">{escape(note)}</p>\n' if note else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{lead}{html}\n</section>\n" if html else ""


@dataclass(frozen=True)
class Link:
    """A table cell that links to another page."""

    text: str
    address: str


Cell = str | Link


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numeric: Iterable[int] = (), name: str = "") -> str:
    """A table. ``numeric`` columns are right-aligned. On a phone each row becomes a small block."""
    right = set(numeric)
    titles = "".join(f'<th scope="col"{_side(column in right)}>{escape(text)}</th>' for column, text in enumerate(head))
    body = "".join(f"<tr>{_cells(head, row, right)}</tr>\n" for row in rows)
    caption = f'<caption class="unseen">{escape(name)}</caption>' if name else ""
    kind = ' class="rows"' if right else ""
    return f"<table{kind}>{caption}<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}</tbody></table>"


def legend(labels: Iterable[str]) -> str:
    """The names of the lines of a chart, in the order of their colours."""
    items = "".join(f"<li>{legend_mark(index)}{escape(group_title(label))}</li>" for index, label in enumerate(labels))
    return f'<ul class="legend">{items}</ul>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and values. Empty values are left out."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>\n" for name, text in pairs if text)
    return f'<dl class="facts">\n{items}</dl>' if items else ""


def folded(title: str, html: str) -> str:
    """Content that is collapsed on screen and shown in print."""
    return f"<details>\n<summary>{escape(title)}</summary>\n{html}\n</details>\n"


def figure(title: str, chart: Chart, note: str = "") -> str:
    """A chart as wide as the page, drawn for screens and again for phones, so that its text stays legible."""
    wide, narrow = (draw(chart, size, f"{title} {chart.description} {size}") for size in (WIDE, NARROW))
    return f'<figure>{_caption(title, note)}<div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>\n'


def small_figure(title: str, chart: Chart, note: str = "") -> str:
    return f"<figure>{_caption(title, note)}{draw(chart, SMALL, title)}</figure>\n"


def _caption(title: str, note: str) -> str:
    more = f" <span>{escape(note)}</span>" if note else ""
    return f"<figcaption><b>{escape(title)}</b>{more}</figcaption>"


def _cells(head: Sequence[str], row: Sequence[Cell], right: set[int]) -> str:
    first = f'<th scope="row">{_content(row[0])}</th>'
    return first + "".join(
        f'<td{_side(column in right)} data-label="{escape(head[column])}">{_content(cell)}</td>'
        for column, cell in enumerate(row[1:], start=1)
    )


def _content(cell: Cell) -> str:
    if isinstance(cell, Link):
        return f'<a href="{escape(cell.address)}">{escape(cell.text)}</a>'
    return escape(cell)


def _side(is_right: bool) -> str:
    return ' class="number"' if is_right else ""
