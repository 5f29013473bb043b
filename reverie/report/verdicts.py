"""How sure a comparison of two groups is, in a sentence.

The seed is the unit: episodes of one run say nothing about other runs. A pair is decided if the p value of the exact
rank test is below its level, and the interquartile means do not contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reverie.report import seed_statistics
from reverie.report.groups import Comparison, Group
from reverie.report.rank_test import two_sided_p
from reverie.report.stopping import ERROR, FEWEST, holm, levels, seeds_needed


@dataclass(frozen=True)
class Verdict:
    """The comparison of two groups on one env."""

    better: str
    """The group that is ahead."""
    worse: str
    runs: tuple[int, int]
    """Runs with a score: of the group that is ahead, and of the other."""
    share: float
    """Fraction of bootstrap resamples over seeds in which the group ahead has the higher interquartile mean."""
    p: float
    """Two-sided, of the exact rank test."""
    level: float = ERROR
    """The p value that decides."""
    needed: int | None = None
    """About how many runs each should decide it. None: no difference in sight."""

    @property
    def is_decided(self) -> bool:
        return self.p <= self.level and self.share > 0.5

    @property
    def more(self) -> tuple[int, int]:
        """Seeds to add to both groups, as far as is known."""
        ahead, behind = ((self.needed or 0) - number for number in self.runs)
        return (0, 0) if self.is_decided else (max(ahead, 0), max(behind, 0))

    def sentence(self) -> str:
        if self.is_decided:
            return (
                f"{self.better} is better than {self.worse}: {_percent(self.share)} of bootstrap resamples over seeds "
                f"({_seeds(self.runs)}), rank test p = {_p(self.p)}."
            )
        return f"{self.better} against {self.worse}: not decided. {self._reason()} {self._advice()}".rstrip()

    def _reason(self) -> str:
        if min(self.runs) < 2:
            return f"A single run claims nothing ({_seeds(self.runs)})."
        ahead = f"{self.better} is ahead in {_percent(self.share)} of bootstrap resamples over seeds"
        few = f" Fewer than {FEWEST} seeds each never decide." if max(self.runs) < FEWEST else ""
        return f"{ahead} ({_seeds(self.runs)}), rank test p = {_p(self.p)}.{few}"

    def _advice(self) -> str:
        if self.needed is None:
            return "No difference is in sight."
        ahead, behind = self.more
        if ahead == behind:
            return f"About {ahead} more seed{'s' * (ahead != 1)} each should decide it."
        parts = [f"{amount} more of {name}" for amount, name in ((ahead, self.better), (behind, self.worse)) if amount]
        return f"About {' and '.join(parts)} should decide it."

    def to_json(self) -> dict[str, object]:
        return {
            "better": self.better, "worse": self.worse, "runs": list(self.runs), "share": self.share, "p": self.p,
            "level": self.level, "is_decided": self.is_decided, "more": list(self.more), "sentence": self.sentence(),
        }  # fmt: skip


def verdicts(comparison: Comparison, env: str) -> list[Verdict]:
    """Every pair of groups of an env. Together they are wrong with a probability of 5 % at most.

    For somebody who looks again after adding seeds, the levels are those of repeated looks.
    """
    found = [compare_groups(*pair) for pair in pairs(comparison.envs[env])]
    if comparison.most_seeds is None:
        allowed = holm([each.p for each in found])
    else:
        by_runs = levels(comparison.most_seeds, ERROR / max(1, len(found)))
        allowed = [by_runs.get(min(each.runs), 0.0) for each in found]
    judged = [replace(each, level=level) for each, level in zip(found, allowed, strict=True)]
    return [_earlier(comparison, env, each) or each for each in judged]


def _earlier(comparison: Comparison, env: str, verdict: Verdict) -> Verdict | None:
    """The verdict with which an earlier look has decided this pair."""
    names = verdict.better, verdict.worse
    earlier = (comparison.decided.get((env, *pair)) for pair in (names, names[::-1]))
    return next((each for each in earlier if each is not None), None)


def pairs(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    scored = [group for group in groups if len(group.scores)]
    return [(left, right) for index, left in enumerate(scored) for right in scored[index + 1 :]]


def compare_groups(left: Group, right: Group) -> Verdict:
    """The verdict on two groups at a level of 5 %. The group ahead is the one whose runs win more pairs."""
    chance = seed_statistics.improvement([left.scores], [right.scores])
    share = seed_statistics.better_share([left.scores], [right.scores])
    if (chance, share) < (0.5, 0.5):
        left, right = right, left
        share = seed_statistics.better_share([left.scores], [right.scores])
    scores = left.scores, right.scores
    return Verdict(
        left.label, right.label, (len(scores[0]), len(scores[1])), share, two_sided_p(*scores),
        needed=seeds_needed(*scores),
    )  # fmt: skip


def _seeds(runs: tuple[int, int]) -> str:
    return f"{runs[0]} seed{'s' * (runs[0] != 1)} each" if runs[0] == runs[1] else f"{runs[0]} and {runs[1]} seeds"


def _percent(share: float) -> str:
    return "more than 99.9 %" if share > 0.9995 else f"{100 * share:.{1 if share > 0.985 else 0}f} %"


def _p(p: float) -> str:
    return f"{p:.1g}" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
