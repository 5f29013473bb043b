"""Norms of gradients and weight changes, computed by hand."""

from __future__ import annotations

import pytest
from torch import nn

from reverie.nets.joint_step import minimise_jointly
from reverie.nets.module_norms import EVERY, ModuleNorms
from reverie.nets.optim import FlatOptimizer, Loss


class Plain(FlatOptimizer):
    """Gradient descent that clips the gradients in place before the step."""

    def update_parameters(self, learning_rate: float) -> None:
        self.gradient.clamp_(max=1.0)
        self.flat.data.sub_(self.gradient, alpha=learning_rate)


def test_gradient_norms_are_before_clipping_and_update_norms_after() -> None:
    one, two = nn.Linear(2, 1), nn.Linear(1, 1, bias=False)
    modules = {"one": one, "two": two}
    optimizers = {name: Plain(None, module.parameters()) for name, module in modules.items()}  # type: ignore[arg-type]
    total = 3 * one.weight[0, 0] + 4 * one.bias[0] + 0.5 * two.weight[0, 0]
    rates = {"one": 0.1, "two": 0.1}
    norms = ModuleNorms({"one": one}) | ModuleNorms({"two": two})
    watched = minimise_jointly(optimizers, Loss, [total], rates, module_norms=norms).metrics
    assert [float(watched[f"{name}_grad_norm"]) for name in modules] == [5.0, 0.5]
    assert float(watched["grad_norm_one"]) == pytest.approx(5.0)
    assert float(watched["update_norm_one"]) == pytest.approx(0.1 * 2**0.5, rel=1e-5)
    assert float(watched["grad_norm_two"]) == pytest.approx(0.5)
    assert float(watched["update_norm_two"]) == pytest.approx(0.05, rel=1e-5)


def test_norms_are_measured_every_ten_updates() -> None:
    module = nn.Linear(1, 1)
    optimizers = {"all": Plain(None, module.parameters())}  # type: ignore[arg-type]

    def is_measured(norms: ModuleNorms | None) -> bool:
        result = minimise_jointly(optimizers, Loss, [module.weight.sum()], {"all": 0.1}, module_norms=norms)
        return "grad_norm_module" in result.metrics

    due = [is_measured(ModuleNorms({"module": module})) for _ in range(2 * EVERY)]
    assert [index for index, is_due in enumerate(due) if is_due] == [0, EVERY]
    assert not is_measured(None)
