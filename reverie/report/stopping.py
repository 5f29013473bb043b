"""When a comparison may be called decided: levels for repeated looks, and how many seeds should decide it.

Looking again after every few seeds and stopping at the first p below 5 % would call far more than 5 % of equal settings
different. So 5 % are spent over all numbers of seeds up to a maximum, in proportion to the number of seeds (the power
family of Lan and DeMets 1983). The levels depend on the maximum only, so it does not matter at which numbers of seeds
somebody looks: the probability of ever being wrong is at most their sum.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from statistics import NormalDist

from reverie.core.types import Array
from reverie.report import seed_statistics
from reverie.report.rank_test import attainable_levels

ERROR = 0.05
"""Highest probability that equal settings are called different."""
POWER = 0.8
"""Probability with which the seeds that are asked for should decide."""
FEWEST = 4
"""With fewer runs each, not even separated groups have a p value below 5 %."""
UNTESTED = 5
"""Seeds each to begin with, if there is nothing yet to estimate a number from."""
HOPELESS = 50
"""More seeds each than this are not worth training."""


@lru_cache(maxsize=64)
def levels(most: int, error: float = ERROR) -> dict[int, float]:
    """For each number of runs per group up to ``most``: the highest p value that decides."""
    found: dict[int, float] = {}
    spent = 0.0
    for runs in range(2, most + 1):
        allowed = error * runs / most - spent
        possible = attainable_levels(runs)
        below = bisect_right(possible, allowed)
        found[runs] = possible[below - 1] if below else 0.0
        spent += found[runs]
    return found


def holm(p_values: list[float], error: float = ERROR) -> list[float]:
    """The level of each of several comparisons, so that all together are wrong with probability ``error`` at most.

    After Holm 1979: the smallest p value is tested at error / n, the next at error / (n - 1), until the first fails.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found = [0.0] * len(p_values)
    for place, index in enumerate(order):
        found[index] = error / (len(p_values) - place)
        if p_values[index] > found[index]:
            for later in order[place:]:
                found[later] = found[index]
            break
    return found


def seeds_needed(left: Array, right: Array, error: float = ERROR) -> int | None:
    """About how many runs each group needs until the rank test decides. None if no difference is in sight.

    After Noether 1987, from the probability of improvement so far.
    """
    if min(len(left), len(right)) < 2:
        return UNTESTED
    effect = abs(seed_statistics.improvement([left], [right]) - 0.5)
    normal = NormalDist()
    quantiles = normal.inv_cdf(1 - error / 2) + normal.inv_cdf(POWER)
    needed = math.inf if effect == 0 else quantiles**2 / (6 * effect**2)
    if needed > HOPELESS:
        return None
    return max(FEWEST, math.ceil(needed), min(len(left), len(right)) + 1)
