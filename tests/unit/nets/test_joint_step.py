"""One backward pass for several optimisers: microbatches add up, metrics too, auxiliary outputs are concatenated."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from reverie.nets.joint_step import minimise_jointly
from reverie.nets.optim import Adam, Loss

ROWS = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])


def make() -> tuple[dict[str, Adam], list[nn.Parameter]]:
    parameters = [nn.Parameter(torch.tensor([value])) for value in (1.0, -2.0)]
    config = Adam.Config(epsilon=1.0)
    optimizers = {name: Adam(config, [parameter]) for name, parameter in zip("ab", parameters, strict=True)}
    return optimizers, parameters


def step(
    rows_each: int, max_grad_norm: float | None = None, joint_norm: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor], list[float]]:
    optimizers, (a, b) = make()

    def loss_fn(rows: Tensor) -> Loss:
        errors = (rows * torch.cat([a, b])).square()
        return Loss(errors.sum(), {"error": errors.sum()}, {"errors": errors.sum(1).detach()})

    rates = {"a": 0.1, "b": 0.2}
    result = minimise_jointly(optimizers, loss_fn, ROWS.split(rows_each), rates, max_grad_norm, joint_norm=joint_norm)
    return result.metrics, result.aux, [float(parameter.detach()) for parameter in (a, b)]


def test_microbatches_add_up() -> None:
    whole, parts = step(3), step(1)
    assert {key: float(value) for key, value in parts[0].items()} == pytest.approx(
        {key: float(value) for key, value in whole[0].items()}
    )
    torch.testing.assert_close(parts[1], whole[1])
    assert parts[2] == pytest.approx(whole[2])


def test_by_hand() -> None:
    """d/da sum((x a)^2) = 2 a sum(x^2) = 2 * 10.25; d/db = 2 * -2 * 21. Adam's first step is lr * g / (|g| + 1)."""
    metrics, aux, values = step(2)
    assert float(metrics["error"]) == pytest.approx(10.25 + 4 * 21)
    assert float(metrics["a_grad_norm"]) == pytest.approx(20.5)
    assert float(metrics["b_grad_norm"]) == pytest.approx(84)
    assert aux["errors"].tolist() == pytest.approx([1 + 16, 9 + 4, 0.25 + 64])
    assert values == pytest.approx([1 - 0.1 * 20.5 / 21.5, -2 + 0.2 * 84 / 85])


def test_each_optimiser_is_clipped_by_its_own_norm() -> None:
    metrics, _, values = step(3, max_grad_norm=1.0)
    assert float(metrics["b_grad_norm"]) == pytest.approx(84)
    assert values == pytest.approx([1 - 0.1 / 2, -2 + 0.2 / 2], rel=1e-4)


def test_parameters_without_gradient_get_zeros() -> None:
    optimizers, (a, b) = make()
    optimizers["b"].gradient.fill_(7.0)
    minimise_jointly(optimizers, Loss, [a.sum()], {"a": 0.1, "b": 0.1})
    assert float(b.detach()) == -2
    assert (optimizers["b"].gradient == 0).all()


def test_a_joint_norm_clips_all_optimisers_by_the_same_factor() -> None:
    """The gradients 20.5 and -84 have a norm of 86.46 together. Clipped to 10, they keep their ratio."""
    metrics, _, values = step(3, max_grad_norm=10.0, joint_norm=True)
    factor = 10 / math.hypot(20.5, 84)
    assert float(metrics["a_grad_norm"]) == pytest.approx(20.5)
    a, b = 20.5 * factor, 84 * factor
    assert values == pytest.approx([1 - 0.1 * a / (a + 1), -2 + 0.2 * b / (b + 1)], rel=1e-4)
