"""Plain tables for the terminal: aligned columns, and no more width than there is.

Text that goes into a file or another program is never shortened. rich needs seconds for ten thousand rows.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence

GAP = "  "
NARROWEST = 12


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[int] = (), width: int | None = None
) -> list[str]:
    """The lines of a table. The widest column is shortened in the middle if they would exceed ``width``."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if width is not None:
        _narrow(widths, width, numeric)
    return [_line(row, widths, numeric) for row in (head, *rows)]


def terminal_width() -> int | None:
    """The width of the terminal. None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, width: int | None) -> list[str]:
    """Lines of at most ``width`` characters, broken between words. All on one line without a width."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) if width else [text]


def shorten(text: str, width: int) -> str:
    """The text with its middle replaced by … if it is longer than ``width``. Names of runs differ at both ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _narrow(widths: list[int], most: int, numeric: Collection[int]) -> None:
    """Take from the widest column of text until the table fits."""
    texts = [index for index in range(len(widths)) if index not in numeric]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - most
    while excess > 0 and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1
        excess -= 1


def _line(row: Sequence[str], widths: Sequence[int], numeric: Collection[int]) -> str:
    cells = [shorten(cell, width) for cell, width in zip(row, widths, strict=True)]
    aligned = [
        cell.rjust(width) if index in numeric else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return GAP.join(aligned).rstrip()
