"""Losses over a horizon, and discounts from episode lengths, by hand."""

from __future__ import annotations

import pytest
import torch

from reverie.functional.horizon import discount_of, horizon_mean


def test_later_steps_count_less() -> None:
    losses = torch.tensor([[1.0, 3.0], [4.0, 8.0], [16.0, 0.0]])
    assert float(horizon_mean(losses, torch.ones(3, 2), 0.5)) == pytest.approx((2 + 0.5 * 6 + 0.25 * 8) / 3)


def test_steps_after_the_end_of_an_episode_do_not_count() -> None:
    losses = torch.tensor([[1.0, 3.0], [4.0, 8.0], [16.0, 99.0]])
    weight = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    assert float(horizon_mean(losses, weight, 0.5)) == pytest.approx((2 + 0.5 * 4 + 0) / 3)


@pytest.mark.parametrize(
    ("steps", "expected"), [(500, 0.99), (100, 0.95), (1000, 0.995), (5000, 0.995), (200, 0.975), (5, 0.95)]
)
def test_the_discount_follows_from_the_episode_length(steps: int, expected: float) -> None:
    """500 steps: a fifth of it is 100, and 99 / 100 is the discount."""
    assert discount_of(steps, 0.95, 0.995) == pytest.approx(expected)
