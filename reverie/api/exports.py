"""Export runs: tables, figures and policies."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.api.run import RunLike, Which, name_of, trusting

if TYPE_CHECKING:
    from reverie.lab.export.write import Exported


def export(
    *names: RunLike,
    format: str = "csv",
    out: str | Path | None = None,
    data: str = "groups",
    statistic: str = "iqm",
    which: Which = "best",
    runs_dir: str | Path = "runs",
    trust: bool = False,
) -> Exported:
    """Export runs as csv, json, latex, markdown, parquet, pdf, png, policy (a folder), zip or onnx.

    ``names`` are runs, patterns or filters such as ``env=CartPole*``; the default is the last run. ``data`` of a table
    is groups, runs, curves or metrics, and ``statistic`` iqm or mean. Without ``out``, text is only returned, and other
    formats write a file into the current folder. ``which`` is the policy to export.
    """
    from reverie.lab.export.write import Request, export_runs
    from reverie.lab.find import find_runs

    request = Request(format, data, statistic, which)
    runs = find_runs([name_of(name) for name in names] or ["@last"], runs_dir)
    with ExitStack() as stack:
        if format == "onnx" and len(runs) == 1:  # the only format that builds the run's classes
            stack.enter_context(trusting(trust, runs[0].path))
        return export_runs(runs, request, None if out is None else Path(out))
