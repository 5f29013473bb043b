"""Comparisons of groups of seeds, as ``reverie compare`` and ``reverie.compare`` return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.errors import ConfigError, nearest
from reverie.lab.frames import make_frame
from reverie.report.efficiency import UNITS, Efficiency, efficiency
from reverie.report.fairness import warnings
from reverie.report.groups import Comparison, Group
from reverie.report.seed_statistics import aggregate, aggregate_interval
from reverie.report.verdicts import Verdict, verdicts
from reverie.report.write import gather_comparison, write_comparison


@dataclass(frozen=True)
class Compared:
    """Groups of seeds by env, what is decided about them, and the page if one was written."""

    comparison: Comparison
    page: Path | None = None

    @property
    def envs(self) -> dict[str, list[Group]]:
        """The groups of every env, the best first."""
        return self.comparison.envs

    def verdicts(self, env: str) -> list[Verdict]:
        """Every pair of groups of an env. ``verdict.sentence()`` says how sure it is."""
        return verdicts(self.comparison, env)

    def warnings(self, env: str) -> list[str]:
        """What makes the comparison unfair or weak."""
        return warnings(self.comparison, env)

    def efficiency(self, env: str) -> Efficiency | None:
        """Where the groups first reach a score."""
        return efficiency(self.comparison, env)

    def rows(self) -> list[dict[str, Any]]:
        """One row per group: env, group, seeds, interquartile mean of the final scores and its interval."""
        return [_row(group) for group in self.comparison.groups]

    def to_frame(self) -> Any:
        """The rows as a pandas frame. Needs the extra ``pandas``."""
        return make_frame(self.rows())

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": self.rows(),
            "verdicts": {env: [verdict.to_json() for verdict in self.verdicts(env)] for env in self.envs},
            "warnings": {env: self.warnings(env) for env in self.envs},
            "page": None if self.page is None else str(self.page),
        }


def compare_runs(
    paths: Sequence[Path], by: str = "env_steps", threshold: float | None = None, most_seeds: int | None = None
) -> Compared:
    """Compare runs. ``most_seeds``: somebody looks again after adding seeds, up to so many each."""
    if by not in UNITS:
        raise ConfigError(f"Curves cannot be aligned by '{by}'.", nearest(by, UNITS))
    comparison = gather_comparison(paths, by)
    comparison.threshold, comparison.most_seeds = threshold, most_seeds
    return Compared(comparison)


def with_page(compared: Compared, out: Path) -> Compared:
    """The same with its page written to ``out``."""
    return Compared(compared.comparison, write_comparison(compared.comparison, out))


def _row(group: Group) -> dict[str, Any]:
    scores = group.scores
    low, high = aggregate_interval([scores]) if len(scores) > 1 else (None, None)
    return {
        "env": group.env, "group": group.label, "runs": len(group.runs), "scored": len(scores),
        "iqm": aggregate([scores]) if len(scores) else None, "low": low, "high": high,
        "names": [run.name for run in group.runs],
    }  # fmt: skip
