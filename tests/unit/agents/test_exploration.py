"""Choosing among valued actions: counted over many draws, and by hand where nothing is drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reverie.agents.exploration import (
    EpsilonGreedy,
    Softmax,
    Thompson,
    UpperConfidence,
    epsilon_greedy,
    random_greedy,
)  # fmt: skip
from reverie.core.rng import make_generator
from reverie.core.types import Array, Clock

MANY = 40_000
SPREAD = 0.01  # four standard deviations of a frequency in so many samples


def frequencies(chosen: Array, actions: int) -> list[float]:
    return (np.bincount(chosen, minlength=actions) / len(chosen)).tolist()  # type: ignore[no-any-return]


def choose(strategy: Any, values: list[float], visits: list[int], clock: Clock = Clock()) -> list[float]:  # noqa: B008
    """How often each action is chosen."""
    rows = [np.tile(row, (MANY, 1)) for row in (values, visits)]
    return frequencies(strategy.choose(*rows, clock, make_generator("choose")), len(values))


def test_greedy_breaks_ties_evenly() -> None:
    values = np.tile([2.0, 5.0, 5.0, 5.0], (MANY, 1))
    counted = frequencies(random_greedy(values, make_generator("ties")), 4)
    assert counted == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=SPREAD)
    assert random_greedy(np.array([[1.0, 3.0], [3.0, 1.0]]), make_generator("a")).tolist() == [1, 0]


def test_epsilon_greedy_by_counting() -> None:
    values = np.tile([0.0, 1.0, 0.5, 1.0], (MANY, 1))
    # 0.4 / 4 for every action, and 0.6 shared by the two best
    strategy = EpsilonGreedy(EpsilonGreedy.Config.model_validate({"epsilon": 0.4}))
    counted = frequencies(strategy.choose(values, values, Clock(), make_generator("epsilon")), 4)
    assert counted == pytest.approx([0.1, 0.4, 0.1, 0.4], abs=SPREAD)
    assert strategy.probabilities(values[:1], Clock())[0] == pytest.approx([0.1, 0.4, 0.1, 0.4])


@pytest.mark.parametrize(("epsilon", "best"), [(0.0, 1.0), (1.0, 0.25)])
def test_epsilon_at_its_ends(epsilon: float, best: float) -> None:
    chosen = epsilon_greedy(np.ones(MANY, np.int64), 4, epsilon, make_generator("e"))
    assert frequencies(chosen, 4)[1] == pytest.approx(best, abs=SPREAD)


def test_epsilon_greedy_leaves_the_best_actions_alone() -> None:
    best = np.zeros(MANY, np.int64)
    assert epsilon_greedy(best, 4, 0.9, make_generator("e")).any()
    assert not best.any()


def test_epsilon_reads_the_clock() -> None:
    falling = {"start": 1.0, "end": 0.0, "from": 0, "to": 100}
    strategy = EpsilonGreedy(EpsilonGreedy.Config.model_validate({"epsilon": falling}))
    assert choose(strategy, [0, 1], [1, 1], Clock(env_steps=50))[0] == pytest.approx(0.25, abs=SPREAD)
    assert choose(strategy, [0, 1], [1, 1], Clock(env_steps=100))[0] == 0
    assert strategy.probabilities(np.array([[0.0, 1.0]]), Clock(env_steps=50))[0] == pytest.approx([0.25, 0.75])


def test_softmax_by_hand_and_by_counting() -> None:
    strategy = Softmax(Softmax.Config.model_validate({"temperature": 2.0}))
    values = [0.0, 2 * math.log(2), 2 * math.log(5)]  # exponentials 1, 2, 5
    assert strategy.probabilities(np.array([values]), Clock())[0] == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert choose(strategy, values, [0, 0, 0]) == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=SPREAD)


def test_softmax_survives_large_values_and_no_temperature() -> None:
    strategy = Softmax(Softmax.Config.model_validate({"temperature": "lin_1.0"}))
    end = Clock(env_steps=1)
    assert strategy.probabilities(np.array([[1e4, 0.0, 1e4]]), Clock())[0].tolist() == [0.5, 0, 0.5]
    assert strategy.probabilities(np.array([[0.1, 0.2]]), end)[0].tolist() == [0, 1]
    assert choose(strategy, [0.1, 0.2], [1, 1], end) == [0, 1]


def test_ucb_by_hand() -> None:
    strategy = UpperConfidence(UpperConfidence.Config(weight=2.0))
    # ln 100 = 4.605; bonuses 2 * sqrt(4.605 / n): n = 90: 0.4524, n = 9: 1.4307, n = 1: 4.2919
    visits = [90, 9, 1]
    for values, best in (([5.0, 0.0, 0.0], 0), ([3.0, 2.1, 0.0], 2), ([3.9, 2.9, 0.0], 0), ([3.8, 2.9, 0.0], 1)):
        assert choose(strategy, values, visits)[best] == 1, values
    assert choose(UpperConfidence(UpperConfidence.Config(weight=0.0)), [0.1, 0.2, 0.15], visits) == [0, 1, 0]


def test_ucb_tries_everything_first() -> None:
    strategy = UpperConfidence(UpperConfidence.Config())
    assert choose(strategy, [100.0, 0.0, -5.0], [7, 0, 0]) == pytest.approx([0, 0.5, 0.5], abs=SPREAD)
    assert choose(strategy, [0.0, 0.0], [0, 0]) == pytest.approx([0.5, 0.5], abs=SPREAD)


class Recorded:
    """A generator that records its calls."""

    def __init__(self) -> None:
        self.rng = make_generator("recorded")
        self.beta_shapes: list[Array] = []
        self.random = self.rng.random

    def beta(self, a: Array, b: Array) -> Array:
        self.beta_shapes += [a, b]
        return self.rng.beta(a, b)


def test_thompson_samples_from_beta_posteriors() -> None:
    strategy, rng = Thompson(Thompson.Config(rewards="bernoulli")), Recorded()
    strategy.choose(np.array([[0.75, 0.0, 0.0]]), np.array([[8, 3, 0]]), Clock(), rng)  # type: ignore[arg-type]
    wins, losses = rng.beta_shapes
    assert wins.tolist() == [[7, 1, 1]]  # one more than the 6 of 8
    assert losses.tolist() == [[3, 4, 1]]


def test_thompson_by_counting() -> None:
    bernoulli = Thompson(Thompson.Config(rewards="bernoulli"))
    # Uniform posterior against Beta(2, 1), whose density is 2 x: the first wins with probability 1/3
    assert choose(bernoulli, [0.0, 1.0], [0, 1]) == pytest.approx([1 / 3, 2 / 3], abs=SPREAD)
    gaussian = Thompson(Thompson.Config(deviation=2.0))
    # Deviations 2 / sqrt(4) and 2 / sqrt(1): the difference of the draws has mean -1 and deviation sqrt(5)
    above = 0.5 * math.erfc(1 / math.sqrt(5) / math.sqrt(2))
    assert choose(gaussian, [0.0, 1.0], [3, 0]) == pytest.approx([above, 1 - above], abs=SPREAD)


def test_thompson_survives_means_that_are_rounded() -> None:
    bernoulli = Thompson(Thompson.Config(rewards="bernoulli"))
    assert choose(bernoulli, [-1e-9, 1 + 1e-9], [10**9, 10**9]) == [0, 1]


def test_the_generator_decides() -> None:
    values, visits = np.tile([1.0, 1.1], (50, 1)), np.ones((50, 2), int)
    kinds = (EpsilonGreedy, Softmax, Thompson)
    for strategy in [kind(kind.Config()) for kind in kinds]:  # type: ignore[arg-type]
        one, two, other = (strategy.choose(values, visits, Clock(), make_generator(name)) for name in ("a", "a", "b"))
        assert np.array_equal(one, two)
        assert not np.array_equal(one, other)
