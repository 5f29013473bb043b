"""Writes reports: about one run into its folder, about several runs beside their folders."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reverie.core.errors import RunError
from reverie.log.progress import progress
from reverie.report.groups import Comparison, compare
from reverie.report.markdown import comparison_text, run_text
from reverie.report.page import run_page
from reverie.report.run_data import gather

NAME = "report"


def report_run(path: Path, out: Path | None = None) -> Path:
    """Write ``report.html`` and ``report.md`` of one run. Returns the path of the page."""
    target = out or path / f"{NAME}.html"
    with progress("writing the report"):
        run = gather(path)
        return _write(target, run_page(run, target.parent), run_text(run))


def report_finished(path: Path) -> Path:
    """The report that a run writes at its end."""
    return report_run(path)


def report_runs(paths: list[Path], out: Path) -> Path:
    """Write a comparison of several runs. Returns the path of the page."""
    return write_comparison(gather_comparison(paths), out)


def gather_comparison(paths: Sequence[Path], by: str = "env_steps") -> Comparison:
    """Read several runs and group them."""
    with progress(f"reading {len(paths)} runs", total=len(paths)) as task:
        return compare([gather(path, with_videos=False) for path in task.count(paths)], by)


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write the page of a comparison, and its text beside it. Returns the path of the page."""
    from reverie.report.comparison import comparison_page

    with progress("writing the comparison"):
        return _write(out, comparison_page(comparison, out.parent), comparison_text(comparison))


def _write(target: Path, page: str, text: str) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, page)
        replace_file(target.with_suffix(".md"), text)
    except OSError as error:
        fix = "Free some space, correct the permissions, or choose another file with --out page.html."
        raise RunError(f"Cannot write '{target}': {error.strerror}.", fix) from error
    return target


def replace_file(path: Path, text: str) -> None:
    """Write a temporary file and rename it. A symbolic link with the name of the target is replaced, not followed."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
