"""Symlog and two-hot against numbers worked by hand and dense targets over all bins."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from reverie.core.rng import make_generator
from reverie.functional.symlog import symexp, symexp_bins, symlog, two_hot, two_hot_losses, two_hot_mean

BINS = torch.tensor([-4.0, -1.0, 0.0, 1.0, 4.0])


def random_tensor(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.as_tensor(make_generator(1, "numbers").standard_normal(shape), dtype=torch.float32) * scale


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    return two_hot_losses(logits, logits.detach().softmax(-1), BINS, target)[0]


def test_symlog_by_hand() -> None:
    e = math.e
    torch.testing.assert_close(symlog(torch.tensor([0.0, e - 1, 1 - e, e**3 - 1])), torch.tensor([0.0, 1, -1, 3]))


def test_symexp_is_the_inverse() -> None:
    x = torch.tensor([-1e6, -3.0, -1e-3, 0.0, 1e-3, 3.0, 1e6])
    torch.testing.assert_close(symexp(symlog(x)), x)


@pytest.mark.parametrize("count", [4, 5, 255])
def test_bins_are_exactly_symmetric_and_sorted(count: int) -> None:
    bins = symexp_bins(count)
    assert len(bins) == count
    assert torch.equal(bins, -bins.flip(0))
    assert (bins.diff() >= 0).all()
    assert bins[-1] == pytest.approx(math.expm1(20), rel=1e-5)
    torch.testing.assert_close(symlog(symexp_bins(5)), torch.tensor([-20.0, -10, 0, 10, 20]))


def test_two_hot_by_hand() -> None:
    # 2 is a third of the way from 1 to 4; 9 and -9 are beyond the ends; 1 is a bin
    below, share = two_hot(torch.tensor([2.0, 9.0, -9.0, 1.0, -2.5]), BINS)
    weights = [[1 - 1 / 3, 1 / 3], [0, 1], [1, 0], [1, 0], [0.5, 0.5]]
    assert below.tolist() == [3, 3, 0, 3, 0]
    torch.testing.assert_close(torch.stack([1 - share, share], 1), torch.tensor(weights))


def test_loss_equals_dense_cross_entropy() -> None:
    logits, target = random_tensor(7, 5), random_tensor(7, scale=3)
    below, share = two_hot(target, BINS)
    dense = torch.zeros(7, 5)
    for row in range(7):
        dense[row, below[row]] += 1 - share[row]
        dense[row, below[row] + 1] += share[row]
    torch.testing.assert_close((dense @ BINS), target.clamp(-4, 4))  # a two-hot vector has the target as its mean
    expected = -(dense * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(loss_of(logits, target), expected)


def test_gradients_equal_dense_cross_entropy() -> None:
    logits, bins = random_tensor(6, 5).double().requires_grad_(), BINS.double()
    targets, weights = random_tensor(2, 6, scale=3).double(), random_tensor(2, 6).double()
    dense = torch.zeros(2, 6, 5).double()
    for (below, weight), row in zip((two_hot(target, bins) for target in targets), dense, strict=True):
        row.scatter_(1, below[:, None], (1 - weight)[:, None]).scatter_(1, below[:, None] + 1, weight[:, None])
    expected = -(dense * logits.log_softmax(-1)).sum(-1)
    found = torch.stack(two_hot_losses(logits, logits.detach().softmax(-1), bins, *targets))
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad((losses * weights).sum(), logits)[0] for losses in (found, expected)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("count", [4, 5, 255])
def test_mean_is_exactly_zero_for_equal_logits(count: int) -> None:
    assert two_hot_mean(torch.full((3, count), 1 / count), symexp_bins(count)).tolist() == [0, 0, 0]


def test_mean_is_the_expectation() -> None:
    logits = random_tensor(6, 5)
    torch.testing.assert_close(two_hot_mean(logits.softmax(-1), BINS), logits.softmax(-1) @ BINS)


def test_gradient_descent_moves_the_mean_to_the_target() -> None:
    target = torch.tensor([3.0, -0.5])
    logits = torch.zeros(2, 5, requires_grad=True)
    for _ in range(300):
        (gradient,) = torch.autograd.grad(loss_of(logits, target).sum(), logits)
        logits = (logits - gradient).detach().requires_grad_()
    torch.testing.assert_close(two_hot_mean(logits.detach().softmax(-1), BINS), target, rtol=0.02, atol=0)
