"""Statistics of few runs: interquartile means, probabilities of improvement, and their bootstrap intervals.

After Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice". Scores come as
strata, one array per task. The bootstrap draws runs with replacement within each task, so every task keeps its weight.
The definitions are those of the paper's library, rliable; tests hold numbers that it computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reverie.core.rng import make_generator
from reverie.core.statistics import interquartile_mean, interquartile_means
from reverie.core.types import Array

DRAWS = 2000
LEVEL = 0.95
Strata = Sequence[Array]
Interval = tuple[float, float]


def aggregate(strata: Strata) -> float:
    """The interquartile mean over the scores of all tasks."""
    return interquartile_mean(np.concatenate([np.asarray(scores, float) for scores in strata]))


def aggregate_interval(strata: Strata) -> Interval:
    """Stratified bootstrap interval of :func:`aggregate`."""
    rng = make_generator("report", "aggregate")
    draws = np.concatenate([_resample(scores, rng) for scores in strata], axis=1)
    return percentiles(interquartile_means(draws))


def improvement(left: Strata, right: Strata) -> float:
    """The probability that a run of the left side scores higher than one of the right side, averaged over tasks.

    A tie counts half.
    """
    return float(_improvements(*([np.asarray(scores, float)[None] for scores in side] for side in (left, right)))[0])


def improvement_interval(left: Strata, right: Strata) -> Interval:
    """Stratified bootstrap interval of :func:`improvement`."""
    rng = make_generator("report", "improvement")
    sides = [[_resample(scores, rng) for scores in side] for side in (left, right)]
    return percentiles(_improvements(*sides))


def better_share(left: Strata, right: Strata) -> float:
    """The fraction of bootstrap resamples in which the left side has the higher interquartile mean. A tie counts half.

    Both sides are drawn independently.
    """
    rng = make_generator("report", "better")
    ours, theirs = (
        interquartile_means(np.concatenate([_resample(scores, rng) for scores in side], axis=1))
        for side in (left, right)
    )
    return float(((ours > theirs) + 0.5 * (ours == theirs)).mean())


def performance_profile(strata: Strata, thresholds: Array) -> tuple[Array, Array, Array]:
    """The fraction of runs that score above each threshold, averaged over tasks, and its bootstrap interval."""
    rng = make_generator("report", "profile")
    tasks = [(scores, _resample(scores, rng)) for scores in map(np.asarray, strata)]
    above = np.mean([(scores[:, None] > thresholds).mean(axis=0) for scores, _ in tasks], axis=0)
    drawn = [np.stack([(draws > threshold).mean(axis=1) for threshold in thresholds]) for _, draws in tasks]
    low, high = np.quantile(np.mean(drawn, axis=0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return above, low, high


def mean_band(curves: Array) -> tuple[Array, Array, Array]:
    """Mean over runs (runs x points) and its bootstrap interval at every point."""
    if len(curves) == 1:
        return curves[0], curves[0], curves[0]
    rng = make_generator("report", "band")
    chosen = rng.integers(len(curves), size=(DRAWS, len(curves)))
    weights = np.stack([(chosen == run).mean(axis=1) for run in range(len(curves))], axis=1)
    low, high = np.quantile(weights @ curves, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return curves.mean(axis=0), low, high


def percentiles(draws: Array) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _resample(scores: Array, rng: np.random.Generator) -> Array:
    """(draws, runs): runs of one task, drawn with replacement."""
    scores = np.asarray(scores, float)
    drawn: Array = scores[rng.integers(len(scores), size=(DRAWS, len(scores)))]
    return drawn


def _improvements(left: Strata, right: Strata) -> Array:
    """The fraction of pairs that the left side wins, averaged over tasks (draws,). Each task has (draws, runs)."""
    tasks = [_wins(ours, theirs) for ours, theirs in zip(left, right, strict=True)]
    fractions: Array = np.mean(tasks, axis=0)
    return fractions


def _wins(ours: Array, theirs: Array) -> Array:
    one_by_one = [ours[:, [run]] for run in range(ours.shape[1])]
    fraction: Array = np.mean([((one > theirs) + 0.5 * (one == theirs)).mean(axis=1) for one in one_by_one], axis=0)
    return fraction
