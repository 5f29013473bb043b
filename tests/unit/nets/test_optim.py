"""The flat optimiser does what torch's does on separate parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import nn

from reverie.nets.optim import NORMS_EVERY, Adam, AdamW, FlatOptimizer, Loss, Outputs, evaluate


def make_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 1))
    return model.to(memory_format=torch.channels_last)


def data() -> torch.Tensor:
    return torch.rand(5, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def loss_of(model: nn.Module) -> torch.Tensor:
    return model(data()).square().mean()


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_steps_equal_torch(kind: type[FlatOptimizer]) -> None:
    model, twin = make_model(), make_model()
    config = kind.Config()  # type: ignore[attr-defined]
    flat = kind(config, model.parameters())
    options = {"eps": config.epsilon, "lr": 0.01}
    if kind is AdamW:
        options["weight_decay"] = config.weight_decay
    reference = getattr(torch.optim, kind.__name__)(twin.parameters(), **options)
    for _ in range(5):
        norm = flat.step(loss_of(model), 0.01, max_grad_norm=0.05)
        reference.zero_grad()
        loss_of(twin).backward()
        expected = nn.utils.clip_grad_norm_(twin.parameters(), 0.05)
        reference.step()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_strides_of_convolutions_are_kept() -> None:
    model = make_model()
    Adam(Adam.Config(), model.parameters())
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[index,union-attr]


def test_state_continues_exactly() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    for _ in range(3):
        optimizer.step(loss_of(model), 0.01)
    other = make_model()
    twin = Adam(Adam.Config(), other.parameters())
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    twin.load_state(optimizer.state())
    for _ in range(3):
        optimizer.step(loss_of(model), 0.02)
        twin.step(loss_of(other), 0.02)
    assert torch.equal(optimizer.flat, twin.flat)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_saved_state_is_a_copy() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    optimizer.step(loss_of(model), 0.01)
    state = optimizer.state()
    before = state["moments"]["first"].copy()
    optimizer.step(loss_of(model), 0.01)
    assert np.array_equal(state["moments"]["first"], before)


def test_grad_norms_are_due_every_so_many_steps_for_modules_with_parameters() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    modules = {"encoder": [model[0]], "nothing": [torch.nn.ReLU()]}  # type: ignore[index]
    due = []
    for step in range(2 * NORMS_EVERY):
        norm = optimizer.step(loss_of(model), 0.01)
        if found := optimizer.grad_norms_if_due(modules, norm):
            due.append(step)
            assert found == optimizer.grad_norms({"encoder": modules["encoder"]}, norm)
    assert due == [0, NORMS_EVERY]


def test_grad_norms_are_those_before_clipping() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    modules = {"encoder": [model[0]], "head": [model[1], model[2]]}  # type: ignore[index]
    norm = optimizer.step(loss_of(model), 0.01, max_grad_norm=0.01)
    found = optimizer.grad_norms(modules, norm)
    twin = make_model()
    loss_of(twin).backward()
    for name, layer in (("encoder", twin[0]), ("head", twin[2])):  # type: ignore[index]
        expected = torch.cat([parameter.grad.flatten() for parameter in layer.parameters()]).norm()
        assert float(found[f"grad_norm_{name}"]) == pytest.approx(float(expected), rel=1e-4)


def squared_error(model: nn.Module) -> Callable[[torch.Tensor], Loss]:
    def loss_fn(rows: torch.Tensor) -> Loss:
        errors = model(rows).squeeze(1).square()
        return Loss(errors.sum(), {"error": errors.sum()}, {"errors": errors})

    return loss_fn


@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
def test_microbatches_add_up(max_grad_norm: float | None) -> None:
    weights, results = [], []
    for rows_each in (5, 2):
        model = make_model()
        optimizer = Adam(Adam.Config(epsilon=1.0), model.parameters())
        microbatches = data().split(rows_each)
        results.append(optimizer.minimise(squared_error(model), microbatches, 0.1, max_grad_norm))
        weights.append(optimizer.flat.detach())
    whole, summed = results
    torch.testing.assert_close(weights[1], weights[0])
    torch.testing.assert_close(summed, whole)
    assert whole.aux["errors"].shape == (5,)
    assert not whole.aux["errors"].requires_grad
    assert float(whole.grad_norm) > 0.05


def test_loss_that_raises_prevents_the_step() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    before = optimizer.flat.detach().clone()

    def loss_fn(rows: torch.Tensor) -> Loss:
        if len(rows) == 1:
            raise ArithmeticError
        return squared_error(model)(rows)

    with pytest.raises(ArithmeticError):
        optimizer.minimise(loss_fn, data().split(2), 0.1)
    assert optimizer.steps == 0
    assert torch.equal(optimizer.flat, before)


def test_evaluate_returns_the_outputs_without_a_step() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    before = optimizer.flat.detach().clone()
    found = evaluate(squared_error(model), data().split(2))
    assert torch.equal(optimizer.flat, before)
    torch.testing.assert_close(found, Outputs(*optimizer.minimise(squared_error(model), data().split(2), 0.1)[:2]))


def test_a_refused_step_changes_nothing_and_reports_the_microbatches_so_far() -> None:
    model = make_model()
    optimizer = Adam(Adam.Config(), model.parameters())
    before = optimizer.flat.detach().clone()
    microbatches = data().split(2)
    so_far = evaluate(squared_error(model), microbatches[:2])
    errors: list[float] = []

    def accept(metrics: Mapping[str, torch.Tensor]) -> bool:
        errors.append(float(metrics["error"]))
        return len(errors) < 2

    result = optimizer.minimise(squared_error(model), microbatches, 0.1, accept=accept)
    assert result.is_skipped
    assert result.grad_norm is None
    assert optimizer.steps == 0
    assert torch.equal(optimizer.flat, before)
    torch.testing.assert_close((result.metrics, result.aux), so_far[:2])
    assert errors == [pytest.approx(float(evaluate(squared_error(model), microbatches[:1]).metrics["error"])),
                    pytest.approx(float(so_far.metrics["error"]))]  # fmt: skip
