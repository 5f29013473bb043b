"""The recurrent loops against torch's own layers, and their written-out gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie.core.specs import ObservationSpec
from reverie.nets.encoders import MLP
from reverie.nets.gated import GRU, LSTM, GRULoop, LSTMLoop

VECTOR = {"obs": ObservationSpec((5,), "float32", "vector")}
PLAIN = MLP.Config(units=())
"""An encoder that returns the vector unchanged."""


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reordered(x: Tensor, order: tuple[int, ...]) -> Tensor:
    """Our gates (first axis) in torch's order."""
    return torch.cat([x.chunk(len(order))[index] for index in order])


@pytest.mark.parametrize(
    ("kind", "layer", "order"), [(GRU, torch.nn.GRU, (0, 1, 2)), (LSTM, torch.nn.LSTM, (1, 2, 3, 0))]
)
def test_outputs_and_gradients_equal_torchs_layers(
    kind: type[GRU], layer: type[torch.nn.GRU], order: tuple[int, ...]
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours, theirs = kind(kind.Config(units=4, encoder=PLAIN), VECTOR), layer(5, 4, batch_first=True)
    with torch.no_grad():
        ours.inputs.bias.copy_(randn(len(ours.inputs.bias)))
        theirs.weight_ih_l0.copy_(reordered(ours.inputs.weight, order))
        theirs.bias_ih_l0.copy_(reordered(ours.inputs.bias, order))
        theirs.weight_hh_l0.copy_(reordered(ours.weight, order))
        theirs.bias_hh_l0.zero_()
        if kind is GRU:
            ours.bias.copy_(randn(4, seed=1))
            theirs.bias_hh_l0[8:] = ours.bias
    x, states = randn(3, 7, 5).float(), [randn(3, 4, seed=number).float() for number in (2, 3)]
    hidden = dict(zip(ours.states, states, strict=False))
    given = states[0][None] if kind is GRU else tuple(state[None] for state in states)
    expected = theirs(x, given)[0]
    found = ours({"obs": x}, torch.zeros(3, 7, dtype=torch.bool), hidden)
    torch.testing.assert_close(found, expected)
    weight = randn(3, 7, 4, seed=4).float()
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    torch.testing.assert_close(reordered(ours.weight.grad, order), theirs.weight_hh_l0.grad)  # type: ignore[arg-type]


def test_gru_gradients_equal_finite_differences() -> None:
    keep = torch.tensor([[1.0, 1], [0, 1], [1, 0], [1, 1]], dtype=torch.float64).unsqueeze(-1)
    numbers = [randn(4, 2, 9), randn(2, 3, seed=1), randn(9, 3, seed=2), randn(9, seed=3)]
    gates, hidden, weight, bias = (x.requires_grad_() for x in numbers)
    assert torch.autograd.gradcheck(GRULoop.apply, (gates, keep, hidden, weight, bias))


def test_lstm_gradients_equal_finite_differences() -> None:
    keep = torch.tensor([[1.0, 1], [0, 1], [1, 0], [1, 1]], dtype=torch.float64).unsqueeze(-1)
    numbers = [randn(4, 2, 12), randn(2, 3, seed=1), randn(2, 3, seed=2), randn(12, 3, seed=3)]
    gates, hidden, cell, weight = (x.requires_grad_() for x in numbers)
    assert torch.autograd.gradcheck(LSTMLoop.apply, (gates, keep, hidden, cell, weight))


def test_initial_gate_biases_keep_the_hidden_state() -> None:
    with torch.random.fork_rng():
        gru, lstm = GRU(GRU.Config(units=2, encoder=PLAIN), VECTOR), LSTM(LSTM.Config(units=2, encoder=PLAIN), VECTOR)
    assert gru.inputs.bias.tolist() == [0, 0, 1, 1, 0, 0]
    assert lstm.inputs.bias.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]


def test_last_of_several_widths_is_used() -> None:
    assert GRU.Config.model_validate({"units": [32, 16]}).units == 16
