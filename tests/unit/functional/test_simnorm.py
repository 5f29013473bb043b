"""SimNorm against numbers worked by hand and torch's softmax."""

from __future__ import annotations

import math

import pytest
import torch

from reverie.core.rng import make_generator
from reverie.functional.simnorm import simnorm


def test_each_group_becomes_probabilities() -> None:
    x = torch.tensor([[0.0, math.log(3), 5.0, 5.0], [math.log(4), 0.0, -1.0, -1.0 + math.log(7)]])
    expected = [[0.25, 0.75, 0.5, 0.5], [0.8, 0.2, 0.125, 0.875]]
    for row, wanted in zip(simnorm(x, 2).tolist(), expected, strict=True):
        assert row == pytest.approx(wanted)
    with torch.no_grad():
        torch.testing.assert_close(simnorm(x, 2), torch.tensor(expected))


def test_the_gradient_is_that_of_a_softmax() -> None:
    x = torch.from_numpy(make_generator("x").standard_normal((3, 2, 24))).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: simnorm(x, 8), x)
    expected = x.unflatten(-1, (3, 8)).softmax(-1).flatten(-2)
    torch.testing.assert_close(simnorm(x, 8), expected)


def test_extreme_values_stay_finite() -> None:
    x = torch.tensor([[1e9, 0.0, -1e9, 300.0]], requires_grad=True)
    y = simnorm(x, 2)
    y.square().sum().backward()
    assert y.tolist() == [
        [pytest.approx(1), pytest.approx(0, abs=1e-20), pytest.approx(0, abs=1e-20), pytest.approx(1)]
    ]
    assert x.grad is not None
    assert x.grad.isfinite().all()
