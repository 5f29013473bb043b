"""Names of report pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reverie.core.errors import ConfigError

LONGEST_NAME = 80


def check_page_name(out: Path | None) -> None:
    """ConfigError for a page that is not called ``.html``. Called before anything is read or trained."""
    if out is not None and out.suffix != ".html":
        raise ConfigError(f"The page '{out}' should end in .html; the text version beside it ends in .md.")


def default_page(paths: Sequence[Path], runs_dir: Path) -> Path:
    """``report-<names>.html`` in the folder of the runs. Many names become their common beginning and a count."""
    names = [path.resolve().name for path in paths]
    joined = "-and-".join(names)
    if len(joined) > LONGEST_NAME:
        begin = _common_beginning(names).strip("-_. ")
        joined = f"{begin[:LONGEST_NAME]}-{len(names)}-runs" if begin else f"{len(names)}-runs"
    return runs_dir / f"report-{re.sub(r'[^A-Za-z0-9._-]+', '-', joined)}.html"


def _common_beginning(names: Sequence[str]) -> str:
    shortest, longest = min(names), max(names)
    size = next((i for i, (a, b) in enumerate(zip(shortest, longest, strict=False)) if a != b), len(shortest))
    return shortest[:size]
