"""Statistics of scores, for evaluations and reports."""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array

TRIMMED = 0.25


def interquartile_mean(values: Array) -> float:
    """Mean of the middle half: a quarter of the values, rounded down, falls away at either end.

    Below four values nothing falls away. This is the 25 % trimmed mean that rliable computes.
    """
    return float(interquartile_means(values[None])[0])


def interquartile_means(values: Array) -> Array:
    """The same for each row."""
    count = values.shape[-1]
    cut = int(TRIMMED * count)
    means: Array = np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return means
