"""Statistics of scores, for evaluations and reports."""

from __future__ import annotations

import numpy as np

from reverie.core.types import Array


def interquartile_mean(values: Array) -> float:
    """Mean of the middle half. Values at its two edges are weighted by their fraction inside it."""
    return float(interquartile_means(values[None])[0])


def interquartile_means(values: Array) -> Array:
    """The same for each row."""
    count = values.shape[-1]
    cut = count / 4
    edges = np.arange(count)
    inside = np.clip(np.minimum(edges + 1, count - cut) - np.maximum(edges, cut), 0, None)
    means: Array = np.average(np.sort(values, axis=-1), axis=-1, weights=inside)
    return means
