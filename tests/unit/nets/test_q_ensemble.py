"""The ensemble of Q-functions against the same networks one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.nets.backend_module import to_backend
from reverie.nets.q_ensemble import QEnsemble, sample_positions


def make(count: int = 3, dropout: float = 0.25) -> QEnsemble:
    torch.manual_seed(0)
    ensemble = QEnsemble(count, inputs=5, units=8, bins=4, dropout=dropout)
    with torch.no_grad():
        for weight in ensemble.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return ensemble


def one_by_one(ensemble: QEnsemble, x: Tensor, member: int, dropped: Tensor | None = None) -> Tensor:
    """A member, written with torch's own functions. ``dropped`` is a mask (N, units)."""
    first, second, output = ensemble.first, ensemble.second, ensemble.output
    hidden = x @ first.weight[member] + first.bias[member]
    if dropped is not None:
        hidden = torch.where(dropped, 0.0, hidden)
    for index, layer in enumerate((second, output)):
        normed = F.layer_norm(hidden, (8,)) * ensemble.scales[index][member] + ensemble.shifts[index][member]
        hidden = F.mish(normed) @ layer.weight[member] + layer.bias[member]
    return hidden


@pytest.mark.parametrize("library", ["torch", "onednn"])
def test_members_are_independent_networks(library: str) -> None:
    ensemble = to_backend(make(), Backend(matmul=library))
    x = torch.randn(6, 5)
    expected = torch.stack([one_by_one(ensemble, x, member) for member in range(3)])
    torch.testing.assert_close(ensemble(x), expected)
    torch.testing.assert_close(ensemble(x, (2, 0)), expected[[2, 0]])
    with torch.no_grad():
        torch.testing.assert_close(ensemble(x, (1, 2)), expected[[1, 2]])


@pytest.mark.parametrize("library", ["torch", "onednn"])
def test_gradients_are_those_of_the_members(library: str) -> None:
    ensemble = to_backend(make(), Backend(matmul=library))
    x = torch.randn(6, 5, requires_grad=True)
    parameters = [x, *ensemble.parameters()]
    found = torch.autograd.grad(ensemble(x).sin().sum(), parameters)
    stacked = torch.stack([one_by_one(ensemble, x, member) for member in range(3)])
    expected = torch.autograd.grad(stacked.sin().sum(), parameters)
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own, wanted)


def test_dropout_zeroes_the_given_positions_before_the_norm() -> None:
    ensemble, x = make(), torch.randn(6, 5)
    mask = torch.rand(2, 6, 8) < 0.3
    dropped = mask.flatten().nonzero().flatten()
    expected = torch.stack([one_by_one(ensemble, x, member, mask[i]) for i, member in enumerate((0, 2))])
    torch.testing.assert_close(ensemble(x, (0, 2), dropped), expected)


def test_every_member_starts_with_its_own_weights_and_at_zero() -> None:
    torch.manual_seed(0)
    ensemble = QEnsemble(4, inputs=50, units=64, bins=7, dropout=0.0)
    for layer in (ensemble.first, ensemble.second):
        deviations = layer.weight.flatten(1).std(1)
        assert deviations.tolist() == pytest.approx([0.02] * 4, rel=0.1)
        assert len(layer.weight.flatten(1)[:, 0].unique()) == 4
        assert not layer.bias.any()
    assert not ensemble(torch.randn(3, 50)).any()


def test_pairs_are_two_different_members() -> None:
    rng, ensemble = make_generator("pairs"), make(5)
    pairs = [ensemble.sample_pair(rng) for _ in range(300)]
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert np.bincount(np.ravel(pairs), minlength=5) / 600 == pytest.approx([0.2] * 5, abs=0.06)
    assert make(1).sample_pair(rng) == (0,)


@pytest.mark.parametrize("probability", [0.01, 0.5])
def test_positions_are_independent_draws(probability: float) -> None:
    rng = make_generator("dropout")
    draws = np.zeros((400, 200), bool)
    for row in draws:
        row[sample_positions(rng, 200, probability)] = True
    assert draws.mean() == pytest.approx(probability, rel=0.1)
    neighbours = (draws[:, 1:] & draws[:, :-1]).mean()
    assert neighbours == pytest.approx(probability**2, rel=0.1, abs=2e-4)
    assert draws[:, 0].mean() == pytest.approx(probability, rel=0.3, abs=0.02)
    assert draws[:, -1].mean() == pytest.approx(probability, rel=0.3, abs=0.02)
    assert not len(sample_positions(rng, 200, 0.0))
