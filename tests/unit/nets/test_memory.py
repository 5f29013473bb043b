"""What every network with memory promises: acting row by row and learning from whole stretches see the same."""

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
from reverie.nets.memory import MemoryNetwork
from reverie.nets.networks import make_network
from reverie.nets.transformer import Transformer, TransformerConfig

VECTOR = {"obs": ObservationSpec((3,), "float32", "vector")}
KINDS = [kind for kind in registry.kinds("network") if is_recurrent(kind)]
SMALL: dict[str, dict[str, Any]] = {"transformer": {"heads": 2, "context": 4, "layers": 2}}
ENVS, ROWS = 3, 11
Memory = dict[str, Tensor]


def make(kind: str, **settings: Any) -> Any:
    values = {"kind": kind, "units": 8, "encoder": {"kind": "mlp", "units": [6]}, **SMALL.get(kind, {}), **settings}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return make_network(Component("network").parse(values), VECTOR)


def rows(seed: int = 0, length: int = ROWS) -> Tensor:
    return torch.randn(ENVS, length, 3, generator=torch.Generator().manual_seed(seed))


def starts(*places: tuple[int, int]) -> Tensor:
    is_first = torch.zeros(ENVS, ROWS, dtype=torch.bool)
    for env, column in places:
        is_first[env, column] = True
    return is_first


def walk(network: Any, x: Tensor, is_first: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
    """Features row by row."""
    features = []
    for column in range(x.shape[1]):
        found, memory = network.step({"obs": x[:, column]}, is_first[:, column], memory)
        features.append(found)
    return torch.stack(features, 1), memory


def remembering(network: Any) -> Memory:
    """The memory after some rows."""
    memory = {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}
    x = rows(seed=9, length=6)
    return walk(network, x, torch.zeros(x.shape[:2], dtype=torch.bool), memory)[1]


def test_there_are_three() -> None:
    assert KINDS == ["gru", "lstm", "transformer"]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_acting_and_learning_see_the_same(kind: str) -> None:
    network, is_first = make(kind), starts((0, 0), (1, 3), (1, 4), (2, 10))
    memory = remembering(network)
    walked, _ = walk(network, rows(), is_first, memory)
    torch.testing.assert_close(network({"obs": rows()}, is_first, memory), walked, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_is_remembered_matters_until_an_episode_starts(kind: str) -> None:
    network, is_first = make(kind), starts((0, 0), (1, 2))
    empty = {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}
    one = network({"obs": rows()}, is_first, empty)
    two = network({"obs": rows()}, is_first, remembering(network))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1, 2:], two[1, 2:])
    assert not torch.equal(one[1, :2], two[1, :2])
    assert not torch.equal(one[2, 0], two[2, 0])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_nothing_from_another_episode_or_from_later_gets_in(kind: str) -> None:
    network, memory = make(kind), remembering(make(kind))
    is_first, changed = starts((0, 5), (1, 5), (2, 5)), rows()
    changed[:, 4] += 1
    one, two = network({"obs": rows()}, is_first, memory), network({"obs": changed}, is_first, memory)
    assert torch.equal(one[:, :4], two[:, :4])
    assert torch.equal(one[:, 5:], two[:, 5:])
    without = network({"obs": changed}, starts(), memory)
    assert not torch.equal(one[:, 5], without[:, 5])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_step_leaves_the_memory_that_it_got_alone(kind: str) -> None:
    network = make(kind)
    memory = remembering(network)
    copy = {key: value.clone() for key, value in memory.items()}
    _, after = network.step({"obs": rows()[:, 0]}, starts()[:, 0], memory)
    assert all(torch.equal(memory[key], copy[key]) for key in copy)
    assert any(not torch.equal(memory[key], after[key]) for key in copy)
    assert {key: value.dtype for key, value in after.items()} == {key: value.dtype for key, value in memory.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 3, 4, 6, 9, ROWS])
@torch.no_grad()
def test_the_quick_way_to_remember_rows_is_that_of_walking_over_them(kind: str, length: int) -> None:
    network = make(kind)
    x, is_first = rows()[:, :length], starts((0, 0), (1, 3), (1, 4), (2, 8))[:, :length]
    for memory in (remembering(network), start(network)):
        quick = network.remember({"obs": x}, is_first, memory)
        walked = walk(network, x, is_first, memory)[1]
        slow = MemoryNetwork.remember(network, {"obs": x}, is_first, memory)
        for key in memory:
            assert torch.equal(slow[key], walked[key])
            torch.testing.assert_close(known(quick, key), known(walked, key), rtol=1e-5, atol=1e-6)


def start(network: Any) -> Memory:
    return {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}


def known(memory: Memory, key: str) -> Tensor:
    """What lies where a transformer does not look, before the start of its episode, is no part of the memory."""
    if key != "cache":
        return memory[key]
    slots = torch.arange(memory["cache"].shape[3])
    return memory["cache"] * (slots >= len(slots) - memory["age"][:, None])[:, None, None, :, None]


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_learns(kind: str) -> None:
    network = make(kind)
    features = network({"obs": rows()}, starts((0, 3)), remembering(network))
    (features * torch.arange(8.0)).square().sum().backward()
    lazy = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert lazy == []


# ---------------------------------------------------------------- the transformer


def transformer(context: int, layers: int = 1) -> Transformer:
    network = make("transformer", context=context, layers=layers)
    assert isinstance(network, Transformer)
    return network


@pytest.mark.parametrize("context", [1, 4, 7, 50])
@torch.no_grad()
def test_a_row_sees_its_context_and_nothing_older(context: int) -> None:
    network, last = transformer(context), ROWS - 1
    memory = {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}
    before = network({"obs": rows()}, starts(), memory)[:, last]
    seen = []
    for column in range(ROWS):
        changed = rows()
        changed[:, column] += 1
        seen.append(not torch.equal(network({"obs": changed}, starts(), memory)[:, last], before))
    assert seen == [last - column <= context for column in range(ROWS)]


@torch.no_grad()
def test_positions_are_relative() -> None:
    """Six rows give the same wherever they lie, however many rows of another episode lie before them."""
    network = transformer(4)
    memory = {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}
    alone = network({"obs": rows()[:, 5:]}, starts((0, 0), (1, 0), (2, 0))[:, : ROWS - 5], memory)
    together = network({"obs": rows()}, starts((0, 5), (1, 5), (2, 5)), memory)[:, 5:]
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_order_of_rows_matters() -> None:
    network, x = transformer(8), rows()
    memory = {key: torch.as_tensor(value) for key, value in network.initial_memory(ENVS).items()}
    swapped = x.clone()
    swapped[:, [7, 8]] = x[:, [8, 7]]
    one, two = (network({"obs": y}, starts(), memory)[:, -1] for y in (x, swapped))
    assert not torch.allclose(one, two, atol=1e-4)


def test_the_memory_of_a_transformer_is_bounded() -> None:
    network = transformer(4, layers=3)
    assert network.initial_memory(2)["cache"].shape == (2, 3, 2, 4, 8)
    with torch.no_grad():
        memory = remembering(network)
        assert memory["cache"].shape == (ENVS, 3, 2, 4, 8)
        assert memory["age"].tolist() == [4, 4, 4]
        _, after = network.step({"obs": rows()[:, 0]}, torch.tensor([True, False, False]), memory)
    assert np.array_equal(after["age"].numpy(), [1, 4, 4])


def test_heads_must_share_the_units_evenly() -> None:
    with pytest.raises(ValueError, match="multiple of twice the heads"):
        TransformerConfig(units=12, heads=4)
