"""``python -m bench stopping``: how often equal settings are called different, and how often unequal ones are decided.

Simulates ``reverie compare --run-until-decided``: two seeds each at first, then as many as the comparison asks for, up
to ten, with the levels of repeated looks. Every comparison draws from its own random stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.lab.until_decided import next_number
from reverie.report.rank_test import two_sided_p
from reverie.report.stopping import ERROR, levels

MOST, FIRST = 10, 2
Draw = Callable[[np.random.Generator, int], Array]
SCORES: dict[str, Draw] = {
    "normal": lambda rng, count: rng.normal(0.0, 1.0, count),
    "capped at 500, many ties": lambda rng, count: np.minimum(500.0, rng.normal(480.0, 40.0, count)).round(),
    "a third of the seeds fail": lambda rng, count: rng.normal(0.0, 1.0, count) - 20.0 * (rng.random(count) < 1 / 3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=2000)
    number = parser.parse_args().comparisons
    for name, draw in SCORES.items():
        decided, runs = simulate(draw, 0.0, number)
        print(f"equal settings, {name}: {decided:.2%} of {number:,} called different, {runs:.1f} seeds each")
    looks = every_look(number)
    print(
        f"equal settings, looking at every number of seeds: {looks[0]:.2%} (at p < {ERROR} each time: {looks[1]:.2%})"
    )
    for shift in (1.0, 2.0, 3.0):
        decided, runs = simulate(SCORES["normal"], shift, number // 4)
        print(f"{shift:g} standard deviations apart: {decided:.0%} decided, {runs:.1f} seeds each")


def simulate(draw: Draw, shift: float, comparisons: int) -> tuple[float, float]:
    """The fraction of comparisons that are decided, and the mean number of seeds of each group."""
    found = [_compare(draw, shift, make_generator("bench", "stopping", number)) for number in range(comparisons)]
    return float(np.mean([decided for decided, _ in found])), float(np.mean([runs for _, runs in found]))


def every_look(comparisons: int) -> tuple[float, float]:
    """The same for somebody who looks at every number of seeds: with our levels, and with 5 % at each look."""
    ours = naive = 0
    for number in range(comparisons):
        left, right = make_generator("bench", "looks", number).normal(0.0, 1.0, (2, MOST))
        p_values = {runs: two_sided_p(left[:runs], right[:runs]) for runs in range(2, MOST + 1)}
        ours += any(p <= levels(MOST)[runs] for runs, p in p_values.items())
        naive += any(p <= ERROR for p in p_values.values())
    return ours / comparisons, naive / comparisons


def _compare(draw: Draw, shift: float, rng: np.random.Generator) -> tuple[bool, int]:
    left, right = draw(rng, FIRST) + shift, draw(rng, FIRST)
    while True:
        p = two_sided_p(left, right)
        if p <= levels(MOST)[len(left)]:
            return True, len(left)
        if len(left) >= MOST:
            return False, len(left)
        more = next_number(left, right, MOST) - len(left)
        left = np.concatenate([left, draw(rng, more) + shift])
        right = np.concatenate([right, draw(rng, more)])
