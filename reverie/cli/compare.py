"""``reverie compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli.options import Json, Quiet, RunsDir, RunWords, Trust
from reverie.cli.text_table import table_lines, terminal_width, wrapped

if TYPE_CHECKING:
    from reverie.lab.compare import Compared
    from reverie.report.efficiency import Efficiency

MOST_SENTENCES = 10


def compare(
    runs: RunWords = None,
    by: Annotated[
        str, typer.Option(metavar="env_steps|updates|wall", help="Align learning curves by this; wall is time.")
    ] = "env_steps",
    threshold: Annotated[
        float | None, typer.Option(help="Compare where runs first reach this return. Default: solved.")
    ] = None,
    until_decided: Annotated[
        bool, typer.Option("--run-until-decided", help="Train more seeds until the comparison is decided.")
    ] = False,
    max_seeds: Annotated[int, typer.Option(min=4, max=50, help="Most seeds per group with --run-until-decided.")] = 10,
    jobs: Annotated[int, typer.Option(min=1, help="How many seeds are trained at the same time.")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Page to write.")] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Compare groups of runs that differ in more than their seed, and say how sure the differences are.

    Examples: reverie compare 'CartPole*', reverie compare algorithm=ppo,dqn env=CartPole-v1 --run-until-decided
    """
    from reverie import api
    from reverie.lab.compare import compare_runs, with_page
    from reverie.report.page_name import check_page_name, default_page

    check_page_name(out)
    words = runs or ["@last"]
    compared = api.compare(*words, by=by, threshold=threshold, runs_dir=runs_dir, quiet=quiet or as_json)
    paths = [run.path for group in compared.comparison.groups for run in group.runs]
    if until_decided:
        from reverie.lab.until_decided import run_until_decided

        training = _Training(jobs, quiet or as_json, trust)
        compared = run_until_decided(
            paths, max_seeds, lambda known: compare_runs(known, by, threshold, max_seeds), training.train, training.say
        )
    if not as_json:
        typer.echo("\n".join(_lines(compared)))  # before the page, which a full disk may refuse
    compared = with_page(compared, out or default_page(paths, runs_dir))
    typer.echo(json.dumps(compared.to_json()) if as_json else f"{compared.page}")


class _Training:
    """Trains the seeds that a comparison asks for."""

    def __init__(self, jobs: int, is_silent: bool, trust: bool) -> None:
        self.jobs, self.is_silent, self.trust = jobs, is_silent, trust

    def say(self, text: str) -> None:
        typer.echo(text, err=True)

    def train(self, run: Path, seeds: list[int]) -> list[Path]:
        """The folders of the runs that have finished. Stops if the user has stopped one of them."""
        from reverie.cli.repeat import repeat_seeds

        results, exit_code = repeat_seeds(str(run), seeds, run.parent, self.jobs, self.is_silent, self.trust)
        if exit_code:
            raise typer.Exit(exit_code)
        return [Path(str(result["path"])) for result in results if result["state"] == "finished"]


def _lines(compared: Compared) -> list[str]:
    from reverie.report.score_tables import SCORE_HEAD, score_rows

    lines: list[str] = []
    for env, groups in compared.envs.items():
        numeric = set(range(1, len(SCORE_HEAD)))
        lines += [env, *table_lines(SCORE_HEAD, score_rows(groups), numeric, terminal_width()), ""]
        lines += _efficiency_lines(compared.efficiency(env))
        sentences = [verdict.sentence() for verdict in compared.verdicts(env)]
        more = len(sentences) - MOST_SENTENCES
        sentences = sentences[:MOST_SENTENCES] + ([f"and {more} more pairs, in the page"] if more > 0 else [])
        sentences += [f"Note: {text}" for text in compared.warnings(env)]
        lines += [line for sentence in sentences for line in wrapped(sentence, terminal_width())]
        lines += [""] if lines[-1] else []
    return lines


def _efficiency_lines(found: Efficiency | None) -> list[str]:
    if found is None:
        return []
    rows = [f"  {label}: median {median}, reached by {reached} runs" for label, reached, median, _ in found.rows]
    return [f"{found.title}:", *rows, ""]
