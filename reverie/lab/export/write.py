"""``reverie export``: chooses what a format needs, and writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reverie.core.errors import ConfigError, RunError, nearest
from reverie.lab.export.tables import STATISTICS, TABLES
from reverie.report.page_name import default_page
from reverie.report.run_data import gather
from reverie.store.files import delete_any, write_bytes
from reverie.store.run_summary import RunSummary

TEXTS = ("csv", "json", "latex", "markdown")
FIGURES = ("pdf", "png")
POLICIES = ("policy", "zip", "onnx")
FORMATS = (*TEXTS, "parquet", *FIGURES, *POLICIES)
ENDINGS = {"policy": "-policy", "zip": ".zip", "onnx": ".onnx", "latex": ".tex", "markdown": ".md"}
Which = Literal["best", "final"]


@dataclass(frozen=True)
class Request:
    """What to export. ``data`` and ``statistic`` are for tables, ``policy`` for policies."""

    format: str = "csv"
    data: str = "groups"
    statistic: str = "iqm"
    policy: Which = "best"

    def __post_init__(self) -> None:
        known = {
            "format": (self.format, FORMATS), "data": (self.data, TABLES), "statistic": (self.statistic, STATISTICS),
            "policy": (self.policy, ("best", "final")),
        }  # fmt: skip
        for option, (value, values) in known.items():
            if value not in values:
                raise ConfigError(f"--{option} cannot be '{value}'.", nearest(value, values))


@dataclass
class Exported:
    """What was exported: text without a file, or the path of what was written, and remarks about it."""

    text: str = ""
    path: Path | None = None
    notes: Sequence[str] = ()


def export_runs(runs: Sequence[RunSummary], request: Request, out: Path | None = None) -> Exported:
    """Export runs. Tables of text need no ``out``; other files get a name in the current folder."""
    if not runs:
        raise RunError("No run matches these filters.", "Name runs, or use fewer filters.")
    if request.format in POLICIES:
        return _export_policy(_single(runs, request), request, out)
    if request.format in FIGURES:
        from reverie.lab.export.figure import draw_curves

        data = draw_curves([gather(run.path, with_videos=False) for run in runs], request.format)
        return _write(data, out or _default_out(runs, request.format), [])
    return _export_table(runs, request, out)


def _export_table(runs: Sequence[RunSummary], request: Request, out: Path | None) -> Exported:
    from reverie.lab.export import formats, latex

    gathered = [gather(run.path, with_videos=False) for run in runs]
    if request.format == "latex" and request.data == "groups":
        return _text(latex.score_table(gathered, request.statistic), out, [])
    table = TABLES[request.data](gathered, request.statistic)
    if request.format == "parquet":
        return _write(formats.as_parquet(table), out or _default_out(runs, request.format), table.notes)
    make = {"csv": formats.as_csv, "json": formats.as_json, "markdown": formats.as_markdown, "latex": latex.plain_table}
    return _text(make[request.format](table), out, table.notes)


def _export_policy(run: RunSummary, request: Request, out: Path | None) -> Exported:
    from reverie.lab.export.policy_folder import write_policy_folder, zip_policy

    out = out or _default_out([run], request.format)
    if request.format == "onnx":
        return _export_onnx(run, request, out)
    if request.format == "zip":
        return _write(zip_policy(run.path, request.policy, f"{run.name}-policy"), out, [])
    if out.exists():
        raise RunError(f"'{out}' exists already.", "Name another folder with --out.")
    with _explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_policy_folder(run.path, request.policy, out)
    return Exported(path=out)


def _export_onnx(run: RunSummary, request: Request, out: Path) -> Exported:
    from reverie.agent import Agent
    from reverie.lab.export.onnx_policy import export_onnx

    agent = Agent.load(run.path, request.policy)
    facts = {"run": run.name, "env": run.env, "algorithm": run.algorithm, "env_steps": agent.about["env_steps"]}
    model, agreement = export_onnx(agent, facts)
    notes = [agreement.text]
    if agent.about["evaluate"].get("sample"):
        notes.append("The run's evaluations sample actions; the graph always takes the most likely one.")
    return _write(model, out, notes)


def _single(runs: Sequence[RunSummary], request: Request) -> RunSummary:
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs[:5])
        raise RunError(f"--format {request.format} exports one run, not {len(runs)}: {names}.", "Name one of them.")
    return runs[0]


def _default_out(runs: Sequence[RunSummary], format: str) -> Path:
    """A name in the current folder, after the runs."""
    stem = default_page([run.path for run in runs], Path()).stem.removeprefix("report-")
    return Path(f"{stem}{ENDINGS.get(format, f'.{format}')}")


def _text(text: str, out: Path | None, notes: Sequence[str]) -> Exported:
    return Exported(text, notes=notes) if out is None else _write(text.encode(), out, notes)


def _write(data: bytes, out: Path, notes: Sequence[str]) -> Exported:
    """Write the file beside its name first, so that a full disk leaves no half of it."""
    temporary = out.with_name(f".{out.name}.new")
    with _explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        delete_any(temporary)  # a link there would lead the data to another file
        try:
            write_bytes(temporary, data)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    return Exported(path=out, notes=notes)


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"'{out}' cannot be written: {error.strerror}.", "Choose another place with --out.") from error
