"""An ensemble computes what its members would compute one by one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from reverie.nets.ensemble import EnsembleLinear, EnsembleMLP, EnsembleNorm


def test_each_member_equals_a_separate_network() -> None:
    ensemble = EnsembleMLP(3, 4, (8, 6), 2, "relu")
    x = torch.randn(5, 4)
    output = ensemble(x)
    assert output.shape == (3, 5, 2)
    layers = [layer for layer in ensemble.layers if isinstance(layer, EnsembleLinear)]
    for member in range(3):
        hidden = x
        for index, layer in enumerate(layers):
            hidden = F.linear(hidden, layer.weight[member].T, layer.bias[member, 0])
            hidden = hidden.relu() if index < len(layers) - 1 else hidden
        torch.testing.assert_close(output[member], hidden)


@pytest.mark.parametrize(("kind", "norm"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_each_member_has_its_own_norm(kind: str, norm: type[nn.Module]) -> None:
    norms, x = EnsembleNorm(3, 4, kind), torch.randn(3, 5, 4)
    with torch.no_grad():
        for parameter in norms.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    for member in range(3):
        alone = norm(4)
        alone.weight.data.copy_(norms.scale[member, 0])
        if norms.shift is not None:
            alone.bias.data.copy_(norms.shift[member, 0])
        torch.testing.assert_close(norms(x)[member], alone(x[member]))
    names = [type(layer).__name__ for layer in EnsembleMLP(2, 3, (4, 4), 1, "relu", kind).layers]
    assert names == ["EnsembleLinear", "EnsembleNorm", "ReLU"] * 2 + ["EnsembleLinear"]


def test_members_are_initialised_and_trained_independently() -> None:
    ensemble = EnsembleMLP(2, 3, (8,), 1, "tanh")
    first, second = ensemble(torch.randn(4, 3))
    assert not torch.allclose(first, second)
    ensemble(torch.randn(4, 3))[0].sum().backward()
    for layer in ensemble.layers:
        if isinstance(layer, EnsembleLinear):
            assert layer.weight.grad is not None
            assert layer.weight.grad[0].abs().sum() > 0
            assert layer.weight.grad[1].abs().sum() == 0


def test_weights_start_in_torchs_range() -> None:
    layer = EnsembleLinear(4, 25, 100)
    for values in (layer.weight, layer.bias):
        assert float(values.detach().abs().max()) == pytest.approx(0.2, rel=0.05)
        assert float(values.detach().std()) == pytest.approx(0.2 / math.sqrt(3), rel=0.05)


def test_without_hidden_layers_it_is_linear() -> None:
    ensemble = EnsembleMLP(2, 3, (), 1, "relu")
    zero, one, two = (ensemble(torch.full((1, 3), value)) for value in (0.0, 1.0, 2.0))
    torch.testing.assert_close(two - one, one - zero)
