"""Reports about runs, and their data as datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from reverie.api.run import RunLike, locate, name_of, trusting
from reverie.core.errors import ConfigError


def report(*names: RunLike, runs_dir: str | Path = "runs", out: str | Path | None = None, quiet: bool = True) -> Path:
    """Write a report about one run into its folder, or a comparison of several. Returns the path of the page.

    ``names`` are runs, patterns, filters, or what :func:`train` returned; the default is the last run.
    ``out`` is another path for the page.
    """
    from reverie.lab.find import find_runs
    from reverie.log.progress import quiet_progress
    from reverie.report.page_name import check_page_name, default_page
    from reverie.report.write import report_run, report_runs

    target = None if out is None else Path(out)
    check_page_name(target)
    runs = find_runs([name_of(name) for name in names] or ["@last"], runs_dir)
    if not runs:
        raise ConfigError("No run matches all of these filters.", "See what there is: reverie runs list")
    paths = [run.path for run in runs]
    with quiet_progress(quiet):
        if len(paths) == 1:
            return report_run(paths[0], target)
        return report_runs(paths, target or default_page(paths, Path(runs_dir)))


def export_data(
    target: RunLike,
    out: str | Path,
    format: Literal["chunks", "minari"] = "chunks",
    buffer: str = "main",
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> Path:
    """Write the replay of a run, or one of our datasets, as a dataset. Returns its folder."""
    from reverie.data.dataset import DESCRIPTION, read_dataset
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import export_dataset, export_run

    is_dataset = (Path(name_of(target)) / DESCRIPTION).exists()
    run = None if is_dataset else locate(target, runs_dir)
    with trusting(trust, run), quiet_progress(quiet):
        if run is None:
            return export_dataset(read_dataset(Path(name_of(target))), Path(out), format)
        return export_run(run, Path(out), format, buffer)


def record_data(
    target: RunLike,
    out: str | Path,
    episodes: int = 100,
    random: bool = False,
    which: str = "best",
    sample: bool = True,
    seed: int = 0,
    runs_dir: str | Path = "runs",
    trust: bool = False,
    quiet: bool = True,
) -> Path:
    """Write new episodes of a run's policy as a dataset, or of random play on an env. Returns the folder."""
    from reverie.config.catalogue import find_env_config
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import EpisodeRecorder

    with quiet_progress(quiet):
        if random:
            return EpisodeRecorder.of_random_play(find_env_config(name_of(target))).record(episodes, seed, Path(out))
        run = locate(target, runs_dir)
        with trusting(trust, run):
            return EpisodeRecorder.of_run(run, which, sample).record(episodes, seed, Path(out))


def describe_data(source: str, quiet: bool = True) -> dict[str, Any]:
    """Summarise a dataset: episodes, rows, returns, columns."""
    from reverie.log.progress import quiet_progress
    from reverie.runs.datasets import describe

    with quiet_progress(quiet):
        return describe(source)
