"""The contract of recurrent networks: acting row by row computes the same features as learning from sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie.core import registry
from reverie.core.config import Component
from reverie.core.specs import ObservationSpec
from reverie.core.traits import is_recurrent
from reverie.nets.networks import make_network
from reverie.nets.recurrent import RecurrentNetwork
from reverie.nets.transformer import Transformer, TransformerConfig

VECTOR = {"obs": ObservationSpec((3,), "float32", "vector")}
KINDS = [kind for kind in registry.kinds("network") if is_recurrent(kind)]
SMALL: dict[str, dict[str, Any]] = {"transformer": {"heads": 2, "context": 4, "layers": 2}}
ENVS, ROWS = 3, 11
Hidden = dict[str, Tensor]


def make(kind: str, **settings: Any) -> Any:
    values = {"kind": kind, "units": 8, "encoder": {"kind": "mlp", "units": [6]}, **SMALL.get(kind, {}), **settings}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return make_network(Component("network").parse(values), VECTOR)


def rows(seed: int = 0, length: int = ROWS) -> Tensor:
    return torch.randn(ENVS, length, 3, generator=torch.Generator().manual_seed(seed))


def starts(*first_rows: tuple[int, int]) -> Tensor:
    is_first = torch.zeros(ENVS, ROWS, dtype=torch.bool)
    for env, column in first_rows:
        is_first[env, column] = True
    return is_first


def walk(network: Any, x: Tensor, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
    """Features and the last hidden state, row by row."""
    features = []
    for column in range(x.shape[1]):
        found, hidden = network.step({"obs": x[:, column]}, is_first[:, column], hidden)
        features.append(found)
    return torch.stack(features, 1), hidden


def hidden_after_rows(network: Any) -> Hidden:
    """The hidden state after some rows."""
    hidden = {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}
    x = rows(seed=9, length=6)
    return walk(network, x, torch.zeros(x.shape[:2], dtype=torch.bool), hidden)[1]


def test_recurrent_kinds() -> None:
    assert KINDS == ["gru", "lstm", "transformer"]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_acting_and_learning_compute_the_same_features(kind: str) -> None:
    network, is_first = make(kind), starts((0, 0), (1, 3), (1, 4), (2, 10))
    hidden = hidden_after_rows(network)
    walked, _ = walk(network, rows(), is_first, hidden)
    torch.testing.assert_close(network({"obs": rows()}, is_first, hidden), walked, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_initial_hidden_state_matters_until_an_episode_starts(kind: str) -> None:
    network, is_first = make(kind), starts((0, 0), (1, 2))
    empty = {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}
    one = network({"obs": rows()}, is_first, empty)
    two = network({"obs": rows()}, is_first, hidden_after_rows(network))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1, 2:], two[1, 2:])
    assert not torch.equal(one[1, :2], two[1, :2])
    assert not torch.equal(one[2, 0], two[2, 0])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_features_ignore_other_episodes_and_later_rows(kind: str) -> None:
    network, hidden = make(kind), hidden_after_rows(make(kind))
    is_first, changed = starts((0, 5), (1, 5), (2, 5)), rows()
    changed[:, 4] += 1
    one, two = network({"obs": rows()}, is_first, hidden), network({"obs": changed}, is_first, hidden)
    assert torch.equal(one[:, :4], two[:, :4])
    assert torch.equal(one[:, 5:], two[:, 5:])
    without = network({"obs": changed}, starts(), hidden)
    assert not torch.equal(one[:, 5], without[:, 5])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_step_does_not_change_its_hidden_state(kind: str) -> None:
    network = make(kind)
    hidden = hidden_after_rows(network)
    copy = {key: value.clone() for key, value in hidden.items()}
    _, after = network.step({"obs": rows()[:, 0]}, starts()[:, 0], hidden)
    assert all(torch.equal(hidden[key], copy[key]) for key in copy)
    assert any(not torch.equal(hidden[key], after[key]) for key in copy)
    assert {key: value.dtype for key, value in after.items()} == {key: value.dtype for key, value in hidden.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 3, 4, 6, 9, ROWS])
@torch.no_grad()
def test_final_hidden_equals_stepping_over_the_rows(kind: str, length: int) -> None:
    network = make(kind)
    x, is_first = rows()[:, :length], starts((0, 0), (1, 3), (1, 4), (2, 8))[:, :length]
    for hidden in (hidden_after_rows(network), start(network)):
        quick = network.final_hidden({"obs": x}, is_first, hidden)
        walked = walk(network, x, is_first, hidden)[1]
        slow = RecurrentNetwork.final_hidden(network, {"obs": x}, is_first, hidden)
        for key in hidden:
            assert torch.equal(slow[key], walked[key])
            torch.testing.assert_close(known(quick, key), known(walked, key), rtol=1e-5, atol=1e-6)


def start(network: Any) -> Hidden:
    return {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}


def known(hidden: Hidden, key: str) -> Tensor:
    """The hidden state without slots from before the episode, which a transformer ignores."""
    if key != "cache":
        return hidden[key]
    slots = torch.arange(hidden["cache"].shape[3])
    return hidden["cache"] * (slots >= len(slots) - hidden["age"][:, None])[:, None, None, :, None]


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_gets_a_gradient(kind: str) -> None:
    network = make(kind)
    features = network({"obs": rows()}, starts((0, 3)), hidden_after_rows(network))
    (features * torch.arange(8.0)).square().sum().backward()
    untrained = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert untrained == []


# ---------------------------------------------------------------- the transformer


def transformer(context: int, layers: int = 1) -> Transformer:
    network = make("transformer", context=context, layers=layers)
    assert isinstance(network, Transformer)
    return network


@pytest.mark.parametrize("context", [1, 4, 7, 50])
@torch.no_grad()
def test_row_attends_to_its_context_only(context: int) -> None:
    network, last = transformer(context), ROWS - 1
    hidden = {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}
    before = network({"obs": rows()}, starts(), hidden)[:, last]
    has_effect = []
    for column in range(ROWS):
        changed = rows()
        changed[:, column] += 1
        has_effect.append(not torch.equal(network({"obs": changed}, starts(), hidden)[:, last], before))
    assert has_effect == [last - column <= context for column in range(ROWS)]


@torch.no_grad()
def test_positions_are_relative() -> None:
    """Six rows give the same features with and without rows of another episode before them."""
    network = transformer(4)
    hidden = {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}
    alone = network({"obs": rows()[:, 5:]}, starts((0, 0), (1, 0), (2, 0))[:, : ROWS - 5], hidden)
    together = network({"obs": rows()}, starts((0, 5), (1, 5), (2, 5)), hidden)[:, 5:]
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_order_of_rows_matters() -> None:
    network, x = transformer(8), rows()
    hidden = {key: torch.as_tensor(value) for key, value in network.initial_hidden(ENVS).items()}
    swapped = x.clone()
    swapped[:, [7, 8]] = x[:, [8, 7]]
    one, two = (network({"obs": y}, starts(), hidden)[:, -1] for y in (x, swapped))
    assert not torch.allclose(one, two, atol=1e-4)


def test_the_hidden_state_of_a_transformer_is_bounded() -> None:
    network = transformer(4, layers=3)
    assert network.initial_hidden(2)["cache"].shape == (2, 3, 2, 4, 8)
    with torch.no_grad():
        hidden = hidden_after_rows(network)
        assert hidden["cache"].shape == (ENVS, 3, 2, 4, 8)
        assert hidden["age"].tolist() == [4, 4, 4]
        _, after = network.step({"obs": rows()[:, 0]}, torch.tensor([True, False, False]), hidden)
    assert np.array_equal(after["age"].numpy(), [1, 4, 4])


def test_units_must_be_divisible_by_the_heads() -> None:
    with pytest.raises(ValueError, match="multiple of twice the heads"):
        TransformerConfig(units=12, heads=4)
