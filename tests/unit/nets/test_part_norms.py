"""Norms of gradients and changes by hand numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from reverie.nets.laprop import step_together
from reverie.nets.optim import FlatOptimizer
from reverie.nets.part_norms import EVERY, PartNorms


class Plain(FlatOptimizer):
    """Gradient descent that clips before it moves, in place."""

    def move(self, learning_rate: float) -> None:
        self.gradient.clamp_(max=1.0)
        self.flat.data.sub_(self.gradient, alpha=learning_rate)


def test_gradients_count_before_clipping_and_changes_after() -> None:
    one, two = nn.Linear(2, 1), nn.Linear(1, 1, bias=False)
    optimizers = [Plain(None, part.parameters()) for part in (one, two)]  # type: ignore[arg-type]
    loss = 3 * one.weight[0, 0] + 4 * one.bias[0] + 0.5 * two.weight[0, 0]
    norms, watched = step_together(optimizers, loss, [0.1, 0.1], PartNorms({"one": one, "two": two}))
    assert [float(norm) for norm in norms] == [5.0, 0.5]
    assert float(watched["grad_norm_one"]) == pytest.approx(5.0)
    assert float(watched["update_norm_one"]) == pytest.approx(0.1 * 2**0.5, rel=1e-5)
    assert float(watched["grad_norm_two"]) == pytest.approx(0.5)
    assert float(watched["update_norm_two"]) == pytest.approx(0.05, rel=1e-5)


def test_it_looks_every_so_many_updates() -> None:
    part = nn.Linear(1, 1)
    optimizer = Plain(None, part.parameters())  # type: ignore[arg-type]
    parts = PartNorms({"part": part})
    due = [bool(step_together([optimizer], part.weight.sum(), [0.1], parts)[1]) for _ in range(2 * EVERY)]
    assert [place for place, is_due in enumerate(due) if is_due] == [0, EVERY]
    assert step_together([optimizer], torch.sum(part.weight), [0.1])[1] == {}
