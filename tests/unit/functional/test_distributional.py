"""Distributions of returns against numbers worked by hand and slow implementations of the papers, atom by atom."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie.core.rng import make_generator
from reverie.functional.distributional import project_categorical, quantile_huber_loss

SUPPORT = torch.tensor([-1.0, 0, 1, 2])


def project(probability: list[float], reward: float, discount: float) -> list[float]:
    result = project_categorical(
        torch.tensor([probability]), torch.tensor([reward]), torch.tensor([discount]), SUPPORT
    )  # fmt: skip
    return [round(value, 6) for value in result[0].tolist()]


def project_slowly(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Algorithm 1 of Bellemare et al. 2017, plus the case it omits (a shifted atom exactly on the grid)."""
    atoms = support.tolist()
    low, high, spacing = atoms[0], atoms[-1], atoms[1] - atoms[0]
    result = np.zeros(probability.shape)
    for sample, (r, g) in enumerate(zip(reward.tolist(), discount.tolist(), strict=True)):
        for atom, mass in zip(atoms, probability[sample].tolist(), strict=True):
            position = (min(max(r + g * atom, low), high) - low) / spacing
            below, above = math.floor(position), math.ceil(position)
            if below == above:
                result[sample, below] += mass
            else:
                result[sample, below] += mass * (above - position)
                result[sample, above] += mass * (position - below)
    return torch.tensor(result, dtype=torch.float32)


def quantile_loss_slowly(quantiles: Tensor, target: Tensor, threshold: float) -> Tensor:
    """Eq. 9 and 10 of Dabney et al. 2018, pair by pair."""
    losses = []
    for predicted, samples in zip(quantiles.tolist(), target.tolist(), strict=True):
        total = 0.0
        for i, quantile in enumerate(predicted):
            level = (2 * i + 1) / (2 * len(predicted))
            for sample in samples:
                u = sample - quantile
                huber = 0.5 * u * u if abs(u) <= threshold else threshold * (abs(u) - 0.5 * threshold)
                total += abs(level - (1 if u < 0 else 0)) * huber / threshold / len(samples)
        losses.append(total)
    return torch.tensor(losses)


@pytest.mark.parametrize(
    ("probability", "reward", "discount", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4], 0.0, 1.0, [0.1, 0.2, 0.3, 0.4]),  # nothing moves
        ([0.1, 0.2, 0.3, 0.4], 1.0, 1.0, [0, 0.1, 0.2, 0.7]),  # one atom up; the rest stays at the top atom
        ([0.1, 0.2, 0.3, 0.4], -9.0, 1.0, [1, 0, 0, 0]),
        ([0.1, 0.2, 0.3, 0.4], 0.25, 0.0, [0, 0.75, 0.25, 0]),  # terminal: all the mass at the reward
        ([0.0, 0.0, 0.0, 1.0], 0.0, 0.6, [0, 0, 0.8, 0.2]),  # 2 * 0.6 = 1.2
        ([0.5, 0.0, 0.0, 0.5], 0.5, 0.5, [0, 0.5, 0.25, 0.25]),  # -1 goes to 0, 2 goes to 1.5
    ],
)
def test_projection_by_hand(probability: list[float], reward: float, discount: float, expected: list[float]) -> None:
    assert project(probability, reward, discount) == expected


def test_projection_equals_the_papers_loop() -> None:
    rng = make_generator("projection")
    support = torch.linspace(-3, 5, 17)
    probability = torch.tensor(rng.dirichlet(np.ones(17), 40), dtype=torch.float32)
    reward = torch.tensor(rng.normal(0, 4, 40), dtype=torch.float32)
    discount = torch.tensor(rng.uniform(0, 1, 40), dtype=torch.float32)
    result = project_categorical(probability, reward, discount, support)
    torch.testing.assert_close(result, project_slowly(probability, reward, discount, support), rtol=0, atol=1e-6)
    torch.testing.assert_close(result.sum(1), torch.ones(40))


def test_projection_preserves_the_mean_within_the_support() -> None:
    probability, support = torch.tensor([[0.1, 0.2, 0.3, 0.4]]), SUPPORT
    result = project_categorical(probability, torch.tensor([0.3]), torch.tensor([0.7]), support)
    # The mean is 1; 0.3 + 0.7 * 1 = 1, and no atom leaves the range: 0.3 + 0.7 * 2 = 1.7
    assert float(result[0] @ support) == pytest.approx(1.0)


def test_quantile_loss_by_hand() -> None:
    # Levels 1/4 and 3/4, quantiles 0 and 2, targets 1 and 4.
    # quantile 0: errors 1, 4 above; huber 0.5, 3.5; times 1/4: 0.125, 0.875; mean 0.5
    # quantile 2: error -1 (0.5 times |3/4 - 1| = 0.125) and 2 (1.5 times 3/4 = 1.125); mean 0.625
    loss = quantile_huber_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    assert loss.tolist() == [pytest.approx(1.125)]


def test_quantile_loss_equals_the_papers_sum() -> None:
    rng = make_generator("quantiles")
    quantiles, target = (torch.tensor(rng.normal(0, 2, (6, n)), dtype=torch.float32) for n in (5, 7))
    for threshold in (0.5, 1.0, 2.0):
        result = quantile_huber_loss(quantiles, target, threshold)
        torch.testing.assert_close(result, quantile_loss_slowly(quantiles, target, threshold))


def test_quantile_loss_is_minimal_at_the_quantiles() -> None:
    """Gradient descent on samples of a uniform variable finds 1/8, 3/8, 5/8, 7/8."""
    samples = (torch.arange(400) + 0.5).unsqueeze(0) / 400
    quantiles = torch.full((1, 4), 0.5, requires_grad=True)
    for _ in range(400):
        (gradient,) = torch.autograd.grad(quantile_huber_loss(quantiles, samples, threshold=0.01).sum(), quantiles)
        quantiles.data -= 0.02 * gradient
    assert quantiles[0].tolist() == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8], abs=0.02)
