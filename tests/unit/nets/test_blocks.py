"""Layers of world models against simple, slow implementations."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reverie import backend
from reverie.core.rng import make_generator
from reverie.nets.blocks import BlockGRU, BlockLinear, Dense, NormedSiLU, make_linear, truncated_normal


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(make_generator(seed, "numbers").standard_normal(shape), dtype=torch.float32)


def randomise(module: nn.Module) -> None:
    """Randomise all parameters: one that is 0 or 1 could hide an error."""
    for number, parameter in enumerate(module.parameters()):
        parameter.data += 0.3 * random_tensor(*parameter.shape, seed=number)


def build(make: type[nn.Module], *sizes: int) -> nn.Module:
    with backend.seeded(make_generator(0)):
        module = make(*sizes)
    randomise(module)
    return module


def test_initial_weights_have_the_variance_of_their_fan_in() -> None:
    with backend.seeded(make_generator(0)):
        weight = torch.empty(400, 250)
        truncated_normal(weight, 250)
    assert float(weight.std()) == pytest.approx(1 / math.sqrt(250), rel=0.01)
    assert float(weight.abs().max()) <= 2 * 1.1368 / math.sqrt(250)
    with backend.seeded(make_generator(0)):
        assert (make_linear(3, 4, scale=0.0).weight == 0).all()


def test_norm_and_activation_by_hand() -> None:
    layer = NormedSiLU(2)
    layer.scale.data = torch.tensor([1.0, 2.0])
    # the mean square of 3 and 4 is 12.5
    normed = torch.tensor([3.0, 8.0]) / math.sqrt(12.5 + 1e-4)
    torch.testing.assert_close(layer(torch.tensor([[3.0, 4.0]])), (normed * torch.sigmoid(normed))[None])


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 4, 6)])
def test_norm_and_activation_gradients_equal_autograd(shape: tuple[int, ...]) -> None:
    layer = build(NormedSiLU, 6)
    x, weight = random_tensor(*shape).requires_grad_(), random_tensor(*shape, seed=5)
    plain = F.silu(F.rms_norm(x, (6,), layer.scale, 1e-4))
    torch.testing.assert_close(layer(x + 0), plain)  # a copy: it writes over what it is given
    with torch.no_grad():
        torch.testing.assert_close(layer(x + 0), plain)
    found = torch.autograd.grad((layer(x + 0) * weight).sum(), (x, layer.scale))
    torch.testing.assert_close(found, torch.autograd.grad((plain * weight).sum(), (x, layer.scale)))


def test_dense_is_linear_norm_and_activation() -> None:
    layer = build(Dense, 3, 4)
    x = random_tensor(7, 3)
    linear = x @ layer.linear.weight.T + layer.linear.bias
    torch.testing.assert_close(layer(x), F.silu(F.rms_norm(linear, (4,), layer.finish.scale, 1e-4)))


def test_block_linear_is_a_block_diagonal_matrix() -> None:
    layer = build(BlockLinear, 3, 6, 12)
    x = random_tensor(5, 6)
    full = torch.block_diag(*layer.weight.detach().unbind())  # (6, 12)
    torch.testing.assert_close(layer(x), x @ full + layer.bias)


def test_block_gru_equals_one_gru_per_block() -> None:
    blocks, width, shared = 2, 6, 5
    cell = build(BlockGRU, width, shared, blocks)
    state, x = random_tensor(4, width, seed=8), random_tensor(4, shared, seed=9)
    size = width // blocks
    # Every block sees its own part of the state and all of the shared input.
    own = [state[:, b * size : (b + 1) * size] for b in range(blocks)]
    rows = [cell.shared.weight[b * size : (b + 1) * size] for b in range(blocks)]
    hidden = torch.cat([own[b] @ cell.own.weight[b] + x @ rows[b].T for b in range(blocks)], 1) + cell.own.bias
    hidden = F.silu(F.rms_norm(hidden, (width,), cell.hidden.scale, 1e-4))
    after = []
    for b in range(blocks):
        bias = cell.gates.bias[b * 3 * size : (b + 1) * 3 * size]
        gates = hidden[:, b * size : (b + 1) * size] @ cell.gates.weight[b] + bias
        reset, candidate, update = gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size :]
        candidate = torch.tanh(reset.sigmoid() * candidate)
        update = (update - 1).sigmoid()
        after.append(update * candidate + (1 - update) * own[b])
    torch.testing.assert_close(cell(state, cell.shared(x)), torch.cat(after, 1))


def test_state_blocks_interact_only_through_the_norm() -> None:
    layer = build(BlockLinear, 3, 6, 6)
    x = random_tensor(1, 6)
    changed = x.clone()
    changed[:, :2] += 1
    same = layer(x)[:, 2:] == layer(changed)[:, 2:]
    assert same.all()
