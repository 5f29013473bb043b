"""Find runs, and compare groups of seeds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.api.run import RunLike, name_of
from reverie.core.errors import ConfigError

if TYPE_CHECKING:
    from reverie.lab.compare import Compared
    from reverie.lab.frames import RunList


def find_runs(filters: str | Iterable[str] = (), runs_dir: str | Path = "runs") -> RunList:
    """The runs that all filters accept, oldest first: ``find_runs("algorithm=ppo best>450 CartPole*")``.

    Words that are no filters name runs. ``.to_frame()`` of the list is a pandas frame.
    """
    from reverie.lab.find import find_runs as find

    return find(filters, runs_dir)


def compare(
    *names: RunLike,
    by: str = "env_steps",
    threshold: float | None = None,
    out: str | Path | None = None,
    runs_dir: str | Path = "runs",
    quiet: bool = True,
) -> Compared:
    """Compare runs that differ in more than their seed, and say how sure the differences are.

    ``names`` are runs, patterns or filters. ``by`` aligns learning curves by env steps, updates or minutes of training
    (``wall``). ``threshold`` is the score whose first position is compared. With ``out`` a page is written there.
    """
    from reverie.lab.compare import compare_runs, with_page
    from reverie.lab.find import find_runs as find
    from reverie.log.progress import quiet_progress
    from reverie.report.page_name import check_page_name

    target = None if out is None else Path(out)
    check_page_name(target)
    if not names:
        raise ConfigError("Name the runs to compare.", "Example: reverie compare 'CartPole*'")
    with quiet_progress(quiet):
        runs = find([name_of(name) for name in names], runs_dir)
        if not runs:
            raise ConfigError("No run matches all of these filters.", "See what there is: reverie runs list")
        compared = compare_runs([run.path for run in runs], by, threshold)
        return compared if target is None else with_page(compared, target)
