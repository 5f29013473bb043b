"""LaProp, clipping and warm-up against numbers worked by hand and against the scalar rule."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from reverie.core.rng import make_generator
from reverie.nets.joint_step import minimise_jointly
from reverie.nets.laprop import LaProp
from reverie.nets.optim import Loss


def make(values: list[list[float]], **settings: Any) -> tuple[LaProp, list[nn.Parameter]]:
    parameters = [nn.Parameter(torch.tensor(value)) for value in values]
    return LaProp(LaProp.Config(**{"warmup": 0, "clip": 0.0, **settings}), parameters), parameters


def test_the_first_step_has_the_size_of_the_learning_rate() -> None:
    optimizer, (weight,) = make([[1.0, -2.0]])
    optimizer.step((weight * torch.tensor([5.0, -0.001])).sum(), 0.1)
    torch.testing.assert_close(weight.data, torch.tensor([0.9, -1.9]))


def test_many_steps_equal_the_scalar_rule() -> None:
    optimizer, (weight,) = make([[1.0, -2.0, 0.5]], betas=(0.8, 0.95), epsilon=1e-12)
    gradients = make_generator(3).standard_normal((6, 3))
    expected = weight.data.double().tolist()
    for column in range(3):
        mean = size = 0.0
        for step, gradient in enumerate(gradients[:, column], 1):
            size = 0.95 * size + 0.05 * gradient**2
            scaled = gradient / (math.sqrt(size / (1 - 0.95**step)) + 1e-12)
            mean = 0.8 * mean + 0.2 * scaled
            expected[column] -= 0.01 * mean / (1 - 0.8**step)
    for gradient in gradients:
        optimizer.step((weight * torch.as_tensor(gradient, dtype=torch.float32)).sum(), 0.01)
    torch.testing.assert_close(weight.data.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6)


def test_each_tensor_is_clipped_by_its_own_norm() -> None:
    # norms of the weights: 5, and 0 which counts as 0.001; of the gradients: 10 and 1; allowed are 1.5 and 0.0003
    optimizer, (big, zero) = make([[3.0, 4.0], [0.0]], clip=0.3)
    loss = (big * torch.tensor([6.0, 8.0])).sum() + zero.sum()
    norm = optimizer.step(loss, 0.0)
    torch.testing.assert_close(norm, torch.tensor(math.sqrt(101)))
    torch.testing.assert_close(big.grad, torch.tensor([0.9, 1.2]))
    torch.testing.assert_close(zero.grad, torch.tensor([0.0003]))


def test_small_gradients_are_not_clipped() -> None:
    optimizer, (weight,) = make([[3.0, 4.0]], clip=0.3)
    optimizer.step((weight * torch.tensor([0.6, 0.8])).sum(), 0.0)
    torch.testing.assert_close(weight.grad, torch.tensor([0.6, 0.8]))


def test_learning_rate_warms_up() -> None:
    optimizer, (weight,) = make([[0.0]], warmup=4)
    positions = [0.0]
    for _ in range(6):
        optimizer.step(-weight.sum(), 1.0)
        positions.append(float(weight.detach()))
    moved = torch.tensor(positions).diff()
    torch.testing.assert_close(moved, torch.tensor([0.25, 0.5, 0.75, 1, 1, 1]))


def test_weights_without_gradient_do_not_move() -> None:
    optimizer, (used, unused) = make([[1.0], [2.0]], clip=0.3)
    optimizer.step(used.sum(), 0.1)
    assert (float(used.detach()), float(unused.detach())) == (pytest.approx(0.9), 2.0)


def test_two_optimisers_stepped_together_equal_one() -> None:
    values, numbers = [[1.0, 2.0], [0.5]], make_generator(0).standard_normal((4, 3))
    whole, together = make(values, clip=0.3, warmup=3), [make([value], clip=0.3, warmup=3) for value in values]
    halves, parameters = {str(index): each[0] for index, each in enumerate(together)}, [each[1][0] for each in together]
    for row in torch.as_tensor(numbers, dtype=torch.float32):
        whole[0].step((torch.cat(list(whole[1])) * row).square().sum(), 0.1)
        minimise_jointly(
            halves, lambda row: Loss((torch.cat(parameters) * row).square().sum()), [row], {"0": 0.1, "1": 0.1}
        )
    assert torch.equal(torch.cat(list(whole[1])), torch.cat(parameters))
    assert [half.steps for half in halves.values()] == [4, 4]


def test_state_continues_bit_for_bit() -> None:
    first, (weight,) = make([[1.0, -2.0]], warmup=3)
    for _ in range(2):
        first.step(weight.square().sum(), 0.1)
    second, (other,) = make([weight.detach().tolist()], warmup=3)
    second.load_state(first.state())
    for optimizer, parameter in ((first, weight), (second, other)):
        optimizer.step(parameter.square().sum(), 0.1)
    assert torch.equal(weight, other)
