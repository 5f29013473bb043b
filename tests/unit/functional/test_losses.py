"""Losses against numbers worked by hand. The last entry has weight 0 and a value that would show."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from reverie.functional.losses import (
    approximate_kl,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    is_clipped,
    minibatch_weights,
    normalise_minibatches,
    weighted_mean,
    weighted_std,
)

WEIGHT = torch.tensor([1.0, 1, 1, 0])


def log_ratios(*ratios: float) -> Tensor:
    return torch.tensor(ratios).log()


def test_weighted_mean() -> None:
    assert weighted_mean(torch.tensor([1.0, 2, 6, 999]), WEIGHT).item() == 3  # (1 + 2 + 6) / 3


def test_weights_need_not_be_zero_or_one() -> None:
    assert weighted_mean(torch.tensor([1.0, 5]), torch.tensor([0.75, 0.25])).item() == 2  # 0.75 + 1.25
    assert weighted_mean(torch.tensor([1.0, 5]), torch.tensor([3.0, 1])).item() == 2  # (3 + 5) / 4


def test_weighted_std() -> None:
    # mean 3, squares 4 + 1 + 9 = 14
    assert weighted_std(torch.tensor([1.0, 2, 6, 999]), WEIGHT).item() == pytest.approx(math.sqrt(14 / 3))


def test_zero_total_weight_gives_zero_and_not_nan() -> None:
    nothing = torch.zeros(4)
    x = torch.tensor([1.0, 2, 6, 999])
    assert weighted_mean(x, nothing).item() == 0
    assert explained_variance(x, x, nothing).item() == 0


def test_explained_variance() -> None:
    target = torch.tensor([1.0, 3, 5, 999])  # variance 8 / 3
    assert explained_variance(target, target, WEIGHT).item() == 1
    assert explained_variance(torch.tensor([7.0, 7, 7, 0]), target, WEIGHT).item() == 0
    # errors -1 0 1: variance 2 / 3, a quarter of the target's
    assert explained_variance(torch.tensor([2.0, 3, 4, 0]), target, WEIGHT).item() == pytest.approx(0.75)
    # errors 4 0 -4: four times the target's
    assert explained_variance(torch.tensor([-3.0, 3, 9, 0]), target, WEIGHT).item() == pytest.approx(-3)
    assert explained_variance(target, torch.full((4,), 2.0), WEIGHT).item() == 0


def test_policy_loss_clips_only_improvements() -> None:
    ratio = log_ratios(1.5, 0.5, 1.1, 3.0)
    # good actions: min(1.5 * 2, 1.2 * 2) = 2.4   min(0.5 * 1, 0.8 * 1) = 0.5   1.1 * 1 = 1.1   sum 4
    good = torch.tensor([2.0, 1, 1, 999])
    assert weighted_mean(clipped_policy_loss(ratio, good, 0.2), WEIGHT).item() == pytest.approx(-4 / 3)
    # bad actions: min(-1.5, -1.2) = -1.5   min(-0.5, -0.8) = -0.8   -1.1   sum -3.4
    bad = torch.tensor([-1.0, -1, -1, 999])
    assert weighted_mean(clipped_policy_loss(ratio, bad, 0.2), WEIGHT).item() == pytest.approx(3.4 / 3)


def test_policy_gradient_stops_outside_the_clip() -> None:
    log_ratio = log_ratios(1.5, 0.5, 1.0, 1.0).requires_grad_()
    weighted_mean(clipped_policy_loss(log_ratio, torch.tensor([1.0, 1, 3, 5]), 0.2), WEIGHT).backward()
    # the first is clipped; the others have gradient -ratio * advantage / 3; the last is no transition
    torch.testing.assert_close(log_ratio.grad, torch.tensor([0.0, -0.5 / 3, -1.0, 0.0]))


def test_value_loss_without_clip_is_the_squared_error() -> None:
    value, old, target = (torch.tensor(x) for x in ([1.0, 2, 3, 9], [0.0, 0, 0, 0], [2.0, 2, 5, 0]))
    assert weighted_mean(clipped_value_loss(value, old, target, None), WEIGHT).item() == pytest.approx(
        5 / 3
    )  # 1 + 0 + 4


def test_value_loss_takes_the_worse_of_free_and_clipped() -> None:
    value, old, target = (torch.tensor(x) for x in ([1.0, 2, -3, 9], [0.0, 0, 0, 0], [2.0, 2, 0, 0]))
    # clipped to 0.5 0.5 -0.5: errors max(1, 2.25)   max(0, 2.25)   max(9, 0.25)   sum 13.5
    assert weighted_mean(clipped_value_loss(value, old, target, 0.5), WEIGHT).item() == pytest.approx(4.5)


def test_approximate_kl() -> None:
    # ratio - 1 - log ratio: 1 - ln 2, 3 - 2 ln 2, 0
    expected = (4 - 3 * math.log(2)) / 3
    assert weighted_mean(approximate_kl(log_ratios(2, 4, 1, 99)), WEIGHT).item() == pytest.approx(expected)


def test_clip_fraction() -> None:
    assert weighted_mean(is_clipped(log_ratios(1.3, 0.7, 1.1, 9), 0.2), WEIGHT).item() == pytest.approx(2 / 3)
    # the ratio counts, not its logarithm: ln 1.22 = 0.199, ln 0.81 = -0.211
    assert weighted_mean(is_clipped(log_ratios(1.22, 1.0, 1.0, 9), 0.2), WEIGHT).item() == pytest.approx(1 / 3)
    assert weighted_mean(is_clipped(log_ratios(0.81, 1.0, 1.0, 9), 0.2), WEIGHT).item() == 0


def test_a_scheduled_clip_may_be_a_tensor() -> None:
    ratio, advantage = log_ratios(1.5, 0.5, 1.1, 3.0), torch.ones(4)
    as_number = weighted_mean(clipped_policy_loss(ratio, advantage, 0.25), WEIGHT)
    assert weighted_mean(clipped_policy_loss(ratio, advantage, torch.tensor(0.25)), WEIGHT).item() == as_number.item()


def test_weights_and_normalisation_within_minibatches() -> None:
    weight = torch.tensor([1.0, 1, 0, 2, 2, 0, 0, 3])  # batches of three: two whole ones and two rows left over
    weights = minibatch_weights(weight, 3)
    assert weights.tolist() == pytest.approx([0.5, 0.5, 0, 0.5, 0.5, 0, 0, 1])
    x = torch.tensor([1.0, 3, 50, 4, 8, -9, 7, 5])
    normal = normalise_minibatches(x, weights, 3)
    # Means 2, 6 and 5; deviations 1, 2 and 0.
    expected = [-1, 1, 48, -1, 1, -7.5]
    assert normal[:6].tolist() == pytest.approx(expected, rel=1e-5)
    assert normal[7].item() == 0
    assert minibatch_weights(torch.zeros(2), 2).tolist() == [0, 0]
    assert torch.dot(x[:3], weights[:3]).item() == weighted_mean(x[:3], weight[:3]).item()
