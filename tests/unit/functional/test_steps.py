"""Steps of all rows of a window: by hand, and against a form that walks from every row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.functional.steps import n_step_transitions, window_transitions


def make_window(rewards: list[float], **flags: list[int]) -> Row:
    """One window whose observations are the numbers of its rows; a flag names the rows where it stands."""
    length = len(rewards)
    batch = {
        "obs": np.arange(length, dtype=np.float32)[None, :, None],
        "action": 100 + np.arange(length)[None],
        "reward": np.array([rewards], np.float32),
        **{name: np.zeros((1, length), bool) for name in ("is_first", "terminated", "truncated")},
    }
    for name, rows in flags.items():
        batch[name][:, rows] = True
    return batch


def test_a_window_by_hand() -> None:
    """Two steps, gamma 0.5, one row to fill the memory. Row 4 is cut, row 5 starts an episode.

    =====  ===========  =======  ========
    row    reward       ends at  discount
    =====  ===========  =======  ========
    1      2 + 0.5 * 3  3        0.25
    2      3 + 0.5 * 4  4        0.25
    3      4            4        0.5       the cut is bootstrapped from, after the one step really made
    4      none: its action was never carried out
    5      6 + 0.5 * 7  7        0.25
    6      none: of its two steps only one lies in the window
    =====  ===========  =======  ========
    """
    batch = make_window([9, 1, 2, 3, 4, 0, 6, 7], truncated=[4], is_first=[0, 5])
    steps = window_transitions(batch, 0.5, 2, burn_in=1)
    assert steps.action.tolist() == [[101, 102, 103, 104, 105, 106]]
    assert (steps.weight * 4).tolist() == [[1, 1, 1, 0, 1, 0]]
    real = steps.weight[0] > 0
    assert steps.reward[0][real].tolist() == [3.5, 5, 4, 9.5]
    assert (1 + steps.reached["column"])[0][real].tolist() == [3, 4, 4, 7]
    assert steps.discount[0][real].tolist() == [0.25, 0.25, 0.5, 0.25]
    assert steps.start.keys() == {"obs", "is_first"}
    assert steps.start["obs"].shape == steps.reached["obs"].shape == (1, 8, 1)


def test_nothing_follows_a_terminal_row() -> None:
    batch = make_window([9, 1, 2, 3, 4, 0], terminated=[4], is_first=[5])
    steps = window_transitions(batch, 0.5, 3, burn_in=0)
    assert steps.weight[0].nonzero()[0].tolist() == [0, 1, 2, 3]
    assert steps.reward[0, :4].tolist() == [1 + 1 + 0.75, 2 + 1.5 + 1, 3 + 2, 4]
    assert steps.discount[0, :4].tolist() == [0.125, 0, 0, 0]


def walk(batch: Row, sample: int, row: int, gamma: float, n: int) -> tuple[float, int, float] | None:
    """The step from a row: what it earns, where it ends, its discount. None if the window does not hold it."""
    flags = {name: batch[name][sample] for name in ("is_first", "terminated", "truncated", "valid")}
    earned, place = 0.0, row
    for count in range(n):
        if flags["terminated"][place] or flags["truncated"][place]:
            return (earned, place, 0.0 if flags["terminated"][place] else gamma**count) if count else None
        is_outside = place + 1 == len(flags["valid"]) or not flags["valid"][place : place + 2].all()
        if is_outside or flags["is_first"][place + 1]:
            return None
        place += 1
        earned += gamma**count * float(batch["reward"][sample, place])
    return earned, place, 0.0 if flags["terminated"][place] else gamma**n


def random_windows(seed: int, count: int = 40, length: int = 13) -> Row:
    """With ends of both kinds, starts that no end announced, and rows that do not count."""
    rng = make_generator(seed, "windows")
    shape = (count, length)
    ended, kind = rng.random(shape) < 0.2, rng.random(shape) < 0.5
    follows = np.concatenate([rng.random((count, 1)) < 0.5, ended[:, :-1]], axis=1)
    return {
        "obs": rng.standard_normal((*shape, 2), dtype=np.float32), "action": rng.integers(0, 3, shape),
        "reward": rng.standard_normal(shape, dtype=np.float32), "terminated": ended & kind, "truncated": ended & ~kind,
        "is_first": follows | (rng.random(shape) < 0.05), "valid": rng.random(shape) > 0.05,
        "importance": np.repeat(rng.random((count, 1), dtype=np.float32), length, 1),
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("burn_in", [0, 4])
def test_windows_against_a_walk_from_every_row(n: int, burn_in: int) -> None:
    batch = random_windows(10 * n + burn_in)
    steps = window_transitions(batch, 0.9, n, burn_in)
    count, length = steps.weight.shape
    assert length == batch["reward"].shape[1] - burn_in - 1
    found: list[Any] = [
        walk(batch, sample, burn_in + row, 0.9, n) for sample in range(count) for row in range(length)
    ]  # fmt: skip
    is_real = np.array([step is not None for step in found]).reshape(count, length)
    assert 0.2 < is_real.mean() < 0.95
    np.testing.assert_array_equal(steps.weight > 0, is_real)
    np.testing.assert_allclose(steps.weight, is_real / is_real.sum(), rtol=1e-6)
    np.testing.assert_allclose(steps.share, steps.weight * batch["importance"][:, :1], rtol=1e-6)
    earned, ends, discount = np.array([step for step in found if step is not None]).T
    np.testing.assert_allclose(steps.reward[is_real], earned, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal((steps.reached["column"] + burn_in)[is_real], ends)
    np.testing.assert_allclose(steps.discount[is_real], discount, rtol=1e-6)
    assert steps.reached["column"].min() >= 0
    assert steps.reached["column"].max() <= length


def test_a_window_of_one_step_is_a_single_sample() -> None:
    batch = {key: value[:, :4] for key, value in random_windows(3).items()}
    batch["is_first"][:] = batch["terminated"][:] = batch["truncated"][:] = False
    batch["valid"][:] = True
    one, many = n_step_transitions(batch, 0.9), window_transitions(batch, 0.9, 3, 0)
    np.testing.assert_allclose(many.reward[:, 0], one.reward, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(many.discount[:, 0], one.discount, rtol=1e-6)
    np.testing.assert_allclose(many.share[:, 0], one.share, rtol=1e-6)
    assert (many.weight[:, 1:] == 0).all()
