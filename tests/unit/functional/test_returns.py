"""Three sequences of five transitions, small enough to work every number by hand.

All have rewards 1 2 0 4 8 (arriving in rows 1 to 5) and values 10 20 30 40 50 60 (of rows 0 to 5), with
gamma = lam = 0.5. They differ in how they end:

A   row 2 is terminated, row 3 starts an episode, row 5 is truncated
B   row 2 is truncated, row 3 starts an episode, row 5 is terminated
C   nothing ends, the data stop at row 5

Transition 2 of A and B goes from a final row to a first row. It is not a real transition, so all its results are 0.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie.data.rows import transitions
from reverie.functional.returns import (
    discounted_return,
    first_n_step,
    gae,
    imagined_return,
    n_step,
    td_lambda_return,
)

GAMMA = LAM = 0.5
REWARD = torch.tensor([[1.0, 2, 0, 4, 8]]).repeat(3, 1)
VALUES = torch.tensor([[10.0, 20, 30, 40, 50, 60]]).repeat(3, 1)
VALUE, NEXT_VALUE = VALUES[:, :-1], VALUES[:, 1:]
TERMINATED = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
LAST = torch.tensor([[0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
WEIGHT = torch.tensor([[1.0, 1, 0, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1]])
ENDS = (TERMINATED, LAST, WEIGHT)


def n_step_return(reward: Tensor, next_value: Tensor, *ends: Any, gamma: float, n: int) -> Tensor:
    """The sum of n rewards and the value after them; of fewer if the episode or the data end before."""
    terms = n_step(reward, *ends, gamma, n)
    return terms.reward + terms.discount * next_value.gather(1, terms.column)


def check(result: Tensor, expected: list[list[float]]) -> None:
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=0)


def test_gae_by_hand() -> None:
    # A  t=4: 8 + 30 - 50 = -12            t=3: 4 + 25 - 40 = -11, with 0.25 * -12: -14
    #    t=1: 2 + 0 - 20 = -18             t=0: 1 + 10 - 10 = 1, with 0.25 * -18: -3.5
    # B  t=4: 8 + 0 - 50 = -42             t=3: -11 + 0.25 * -42 = -21.5
    #    t=1: 2 + 15 - 20 = -3             t=0: 1 + 0.25 * -3 = 0.25
    # C  t=4: -12   t=3: -14               t=2: 0 + 20 - 30 = -10, with 0.25 * -14: -13.5
    #    t=1: -3 + 0.25 * -13.5 = -6.375   t=0: 1 + 0.25 * -6.375 = -0.59375
    check(
        gae(REWARD, VALUE, NEXT_VALUE, *ENDS, GAMMA, LAM),
        [[-3.5, -18, 0, -14, -12], [0.25, -3, 0, -21.5, -42], [-0.59375, -6.375, -13.5, -14, -12]],
    )


def test_lambda_return_by_hand() -> None:
    # A  t=4: 8 + 30 = 38   t=3: 4 + 0.5 * (0.5 * 50 + 0.5 * 38) = 26
    #    t=1: 2             t=0: 1 + 0.5 * (0.5 * 20 + 0.5 * 2) = 6.5
    # B  t=4: 8             t=3: 4 + 0.5 * (25 + 4) = 18.5
    #    t=1: 2 + 15 = 17   t=0: 1 + 0.5 * (10 + 8.5) = 10.25
    # C  t=2: 0 + 0.5 * (20 + 13) = 16.5   t=1: 2 + 0.5 * (15 + 8.25) = 13.625
    #    t=0: 1 + 0.5 * (10 + 6.8125) = 9.40625
    check(
        td_lambda_return(REWARD, NEXT_VALUE, *ENDS, GAMMA, LAM),
        [[6.5, 2, 0, 26, 38], [10.25, 17, 0, 18.5, 8], [9.40625, 13.625, 16.5, 26, 38]],
    )


def test_discounted_return_by_hand() -> None:
    # A  t=4: 8   t=3: 4 + 4 = 8   t=1: 2   t=0: 1 + 1 = 2; B is the same: what follows a cut is unknown
    # C  t=2: 0 + 4 = 4   t=1: 2 + 2 = 4   t=0: 1 + 2 = 3
    check(discounted_return(REWARD, *ENDS, GAMMA), [[2, 2, 0, 8, 8], [2, 2, 0, 8, 8], [3, 4, 4, 8, 8]])


def test_discounted_return_bootstraps_only_through_truncation() -> None:
    # A  t=4: 8 + 30 = 38   t=3: 4 + 19 = 23   t=1: 2         t=0: 2
    # B  t=4: 8             t=3: 8             t=1: 2 + 15    t=0: 1 + 8.5 = 9.5
    # C  t=4: 38  t=3: 23   t=2: 11.5          t=1: 7.75      t=0: 4.875
    check(
        discounted_return(REWARD, *ENDS, GAMMA, bootstrap=NEXT_VALUE),
        [[2, 2, 0, 23, 38], [9.5, 17, 0, 8, 8], [4.875, 7.75, 11.5, 23, 38]],
    )


def test_two_step_return_by_hand() -> None:
    # A  t=0: 1 + 1, terminated   t=1: 2, terminated   t=3: 4 + 4 + 60 / 4 = 23   t=4: 8 + 60 / 2 = 38
    # B  t=0: 1 + 1 + 30 / 4 = 9.5   t=1: 2 + 30 / 2 = 17, cut after one step   t=3: 8   t=4: 8
    # C  t=0: 9.5   t=1: 2 + 0 + 40 / 4 = 12   t=2: 0 + 2 + 50 / 4 = 14.5   t=3: 23   t=4: 38
    check(
        n_step_return(REWARD, NEXT_VALUE, *ENDS, gamma=GAMMA, n=2),
        [[2, 2, 0, 23, 38], [9.5, 17, 0, 8, 8], [9.5, 12, 14.5, 23, 38]],
    )


def test_n_step_gives_the_row_to_bootstrap_from() -> None:
    parts = n_step(REWARD, *ENDS, GAMMA, n=2)
    check(parts.reward, [[2, 2, 0, 8, 8], [2, 2, 0, 8, 8], [2, 2, 2, 8, 8]])
    check(parts.discount, [[0, 0, 0, 0.25, 0.5], [0.25, 0.5, 0, 0, 0], [0.25, 0.25, 0.25, 0.25, 0.5]])
    real = WEIGHT.bool()
    assert parts.column[real].tolist() == [1, 1, 4, 4, 1, 1, 4, 4, 1, 2, 3, 4, 4]


def test_one_step_is_the_td_target() -> None:
    expected = WEIGHT * (REWARD + GAMMA * NEXT_VALUE * (1 - TERMINATED.float()))
    torch.testing.assert_close(n_step_return(REWARD, NEXT_VALUE, *ENDS, gamma=GAMMA, n=1), expected)
    torch.testing.assert_close(td_lambda_return(REWARD, NEXT_VALUE, *ENDS, GAMMA, lam=0.0), expected)
    torch.testing.assert_close(gae(REWARD, VALUE, NEXT_VALUE, *ENDS, GAMMA, 0.0), expected - VALUE * WEIGHT)


def test_n_steps_beyond_the_data_are_the_discounted_return() -> None:
    expected = discounted_return(REWARD, *ENDS, GAMMA, bootstrap=NEXT_VALUE)
    torch.testing.assert_close(n_step_return(REWARD, NEXT_VALUE, *ENDS, gamma=GAMMA, n=9), expected)


def test_gap_without_a_final_row_is_a_truncation() -> None:
    weight = torch.tensor([[1.0, 1, 0, 1]])  # no transition from row 2 to row 3, but no end either
    never = torch.zeros(1, 4, dtype=torch.bool)
    reward, next_value = torch.tensor([[1.0, 2, 64, 4]]), torch.tensor([[10.0, 20, 128, 40]])
    value = torch.tensor([[5.0, 10, 20, 128]])
    # t=3: 4 + 20 = 24   t=1: 2 + 10 = 12   t=0: 1 + 6 = 7
    for result in (
        discounted_return(reward, never, never, weight, GAMMA, bootstrap=next_value),
        n_step_return(reward, next_value, never, never, weight, gamma=GAMMA, n=3),
        gae(reward, value, next_value, never, never, weight, GAMMA, lam=1.0) + value * weight,
    ):
        check(result, [[7, 12, 0, 24]])


def test_an_end_counts_even_if_no_final_row_follows() -> None:
    # consecutive transitions without final rows: the first is truncated, the second continues
    weight, never = torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool)
    last = torch.tensor([[True, False]])
    reward, next_value = torch.tensor([[1.0, 2]]), torch.tensor([[10.0, 20]])
    value = torch.tensor([[3.0, 4]])
    # t=1: 2 + 10 = 12   t=0: 1 + 5 = 6
    for result in (
        discounted_return(reward, never, last, weight, GAMMA, bootstrap=next_value),
        n_step_return(reward, next_value, never, last, weight, gamma=GAMMA, n=2),
        gae(reward, value, next_value, never, last, weight, GAMMA, lam=1.0) + value,
    ):
        check(result, [[6, 12]])


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
def test_lambda_returns_equal_the_forward_view(lam: float) -> None:
    reward, values, ends = random_experience(num_streams=6, length=40)
    value, next_value = values[:, :-1], values[:, 1:]
    expected = forward_view(reward, next_value, *ends, gamma=0.9, lam=lam)
    returns = td_lambda_return(reward, next_value, *ends, 0.9, lam)
    advantage = gae(reward, value, next_value, *ends, 0.9, lam)
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(advantage, expected - value * ends[2], rtol=1e-5, atol=1e-5)


def test_lambda_one_is_the_discounted_return() -> None:
    reward, values, ends = random_experience(num_streams=4, length=30)
    advantage = gae(reward, values[:, :-1], values[:, 1:], *ends, 0.97, 1.0)
    returns = discounted_return(reward, *ends, 0.97, bootstrap=values[:, 1:])
    torch.testing.assert_close(advantage, returns - values[:, :-1] * ends[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_n_step_equals_a_loop_over_rows(n: int) -> None:
    reward, values, ends = random_experience(num_streams=5, length=25)
    result = n_step_return(reward, values[:, 1:], *ends, gamma=0.9, n=n)
    walked = torch.tensor(
        [[walk(reward[b], values[b, 1:], *(x[b] for x in ends), t, n, 0.9) for t in range(25)] for b in range(5)]
    )
    torch.testing.assert_close(result, walked, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_the_first_n_steps_are_the_first_column_of_all(n: int) -> None:
    reward, _, ends = random_experience(num_streams=200, length=n)
    expected = n_step(reward, *ends, gamma=0.9, n=n)
    found = first_n_step(reward.numpy(), *(part.numpy() for part in ends), 0.9)
    is_real = ends[2][:, 0] > 0
    assert found.column[is_real] == pytest.approx(expected.column[is_real, 0])
    assert found.reward == pytest.approx(expected.reward[:, 0], rel=1e-5, abs=1e-6)
    assert found.discount == pytest.approx(expected.discount[:, 0], rel=1e-5)
    assert len(np.unique(found.discount)) > n  # all kinds of ends occur


def test_values_in_final_rows_are_never_used() -> None:
    spoilt_reward, spoilt_value = REWARD.clone(), VALUES.clone()
    spoilt_value[0, 2] = 1e6  # A: the absorbing row
    spoilt_reward[:2, 2] = 1e6  # A and B: arrives in a first row
    arguments = (spoilt_reward, spoilt_value[:, :-1], spoilt_value[:, 1:])
    torch.testing.assert_close(gae(*arguments, *ENDS, GAMMA, LAM), gae(REWARD, VALUE, NEXT_VALUE, *ENDS, GAMMA, LAM))


def random_experience(num_streams: int, length: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Random rows with both kinds of ends, split by ``transitions``."""
    rng = np.random.default_rng(7)
    shape = (num_streams, length + 1)
    last = np.zeros(shape, bool)
    for stream, column in itertools.product(*map(range, shape)):
        after_end = column > 0 and last[stream, column - 1]
        last[stream, column] = not after_end and rng.random() < 0.2
    terminated = last & (rng.random(shape) < 0.5)
    is_first = np.pad(last[:, :-1], [(0, 0), (1, 0)])
    rows = {
        "reward": rng.standard_normal(shape, np.float32),
        "is_first": is_first,
        "terminated": terminated,
        "truncated": last & ~terminated,
    }
    _, then, weight = transitions({key: torch.from_numpy(array) for key, array in rows.items()})
    values = torch.from_numpy(rng.standard_normal(shape, np.float32))
    return then["reward"], values, (then["terminated"], then["terminated"] | then["truncated"], weight)


def walk(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    t: int,
    n: int,
    gamma: float,
) -> float:
    """The n-step return from column t, by a loop over one env's rows."""
    if weight[t] == 0:
        return 0.0
    total = 0.0
    for k in range(n):
        total += gamma**k * float(reward[t + k])
        if terminated[t + k]:
            return total
        if last[t + k] or t + k == len(reward) - 1:
            break
    return total + gamma ** (k + 1) * float(next_value[t + k])


def forward_view(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    last: Tensor,
    weight: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """(1 - lam) * sum of lam^(n-1) * n-step returns; the longest one gets the remaining weight."""
    result = torch.zeros_like(reward)
    for b, t in itertools.product(*map(range, reward.shape)):
        stream = (reward[b], next_value[b], terminated[b], last[b], weight[b])
        stops = [k for k in range(t, reward.shape[1]) if last[b, k]]
        longest = (stops[0] if stops else reward.shape[1] - 1) - t + 1
        shares = [(1 - lam) * lam ** (n - 1) for n in range(1, longest)] + [lam ** (longest - 1)]
        result[b, t] = sum(share * walk(*stream, t, n, gamma) for n, share in enumerate(shares, start=1))
    return result


def test_imagined_return_by_hand() -> None:
    # t=2: 4 + 0.5 * 30 = 19   t=1: 2 + 1.0 * (0.5 * 20 + 0.5 * 19) = 21.5   t=0: 1 + 0.2 * (5 + 10.75) = 4.15
    reward, next_value = torch.tensor([[1.0, 2, 4]]), torch.tensor([[10.0, 20, 30]])
    found = imagined_return(reward, next_value, torch.tensor([[0.2, 1.0, 0.5]]), LAM)
    torch.testing.assert_close(found, torch.tensor([[4.15, 21.5, 19]]))


def test_imagined_return_with_one_discount_is_the_lambda_return() -> None:
    never = torch.zeros_like(LAST)
    expected = td_lambda_return(REWARD, NEXT_VALUE, never, never, torch.ones_like(WEIGHT), GAMMA, LAM)
    torch.testing.assert_close(imagined_return(REWARD, NEXT_VALUE, torch.full_like(REWARD, GAMMA), LAM), expected)
