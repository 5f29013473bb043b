"""Hand-written derivatives against autograd, at points on both sides of every kink."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from reverie.core.types import Array
from reverie.functional import losses
from reverie.functional.gradients import clipped_policy_gradient, clipped_value_gradient, huber_gradient

POINTS = np.array([-3.0, -1.0001, -0.31, -0.05, 0.0, 0.02, 0.29, 0.9999, 2.5], np.float32)


def by_autograd(loss: torch.Tensor, x: torch.Tensor) -> tuple[Array, Array]:
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach().numpy(), gradient.numpy()


def assert_same(found: tuple[Array, Array], expected: tuple[Array, Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)


def pairs() -> tuple[Array, Array]:
    first, second = np.meshgrid(POINTS, POINTS)
    return first.ravel(), second.ravel()


def test_clipped_policy() -> None:
    log_ratio, advantage = pairs()
    x = torch.from_numpy(log_ratio).requires_grad_()
    loss = losses.clipped_policy_loss(x, torch.from_numpy(advantage), 0.2)
    assert_same(clipped_policy_gradient(log_ratio, advantage, 0.2), by_autograd(loss, x))


@pytest.mark.parametrize("clip", [None, 0.3])
def test_clipped_value(clip: float | None) -> None:
    value, target = pairs()
    old = np.linspace(-1, 1, len(value), dtype=np.float32)
    x = torch.from_numpy(value).requires_grad_()
    loss = losses.clipped_value_loss(x, torch.from_numpy(old), torch.from_numpy(target), clip)
    assert_same(clipped_value_gradient(value, old, target, clip), by_autograd(loss, x))


def test_huber() -> None:
    value, target = pairs()
    x = torch.from_numpy(value).requires_grad_()
    loss = F.smooth_l1_loss(x, torch.from_numpy(target), reduction="none")
    assert_same(huber_gradient(value, target), by_autograd(loss, x))


def test_by_hand() -> None:
    loss, slope = huber_gradient(np.array([3.0, 0.5], np.float32), np.zeros(2, np.float32))
    assert loss.tolist() == [2.5, 0.125]
    assert slope.tolist() == [1.0, 0.5]
    # A ratio of e with advantage 1 is clipped at 1.2 and has no slope; with advantage -1 it is not clipped.
    loss, slope = clipped_policy_gradient(np.ones(2, np.float32), np.array([1, -1], np.float32), 0.2)
    assert loss == pytest.approx([-1.2, np.e])
    assert slope == pytest.approx([0, np.e])
