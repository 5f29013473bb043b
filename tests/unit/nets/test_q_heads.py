"""Heads of Q-networks by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from reverie.core.rng import make_generator
from reverie.nets.q_heads import CategoricalHead, NoisyLinear, QHead, QuantileHead, ScalarHead

FEATURES, ACTIONS = 4, 3


def make_head(kind: type[QHead], dueling: bool = False, noisy: bool = False, **settings: float) -> QHead:
    return kind(kind.Config(**settings), FEATURES, ACTIONS, dueling, noisy)  # type: ignore[attr-defined,call-arg,arg-type]


# ---------------------------------------------------------------- noisy layers


def test_noisy_linear_without_noise_is_linear() -> None:
    layer, x = NoisyLinear(4, 3), torch.randn(5, 4)
    assert torch.equal(layer(x), layer.mean(x))
    layer.sample_noise(make_generator("noise"))
    assert not torch.equal(layer(x), layer.mean(x))
    layer.sample_noise(None)
    assert torch.equal(layer(x), layer.mean(x))


def test_noise_is_factorised() -> None:
    layer, x = NoisyLinear(4, 3, initial_noise=0.6), torch.randn(5, 4)
    layer.sample_noise(make_generator("noise"))
    rng = make_generator("noise")
    drawn = [rng.standard_normal(size, dtype=np.float32) for size in (4, 3)]
    inputs, outputs = (np.sign(e) * np.sqrt(np.abs(e)) for e in drawn)  # f(x) = sgn(x) sqrt(|x|)
    scale = 0.6 / math.sqrt(4)
    weight, bias = (p.detach().numpy() for p in (layer.mean.weight, layer.mean.bias))
    expected = np.zeros((5, 3), np.float32)
    for row in range(5):
        for out in range(3):
            noisy = [weight[out, i] + scale * outputs[out] * inputs[i] for i in range(4)]
            expected[row, out] = np.dot(noisy, x[row].numpy()) + bias[out] + scale * outputs[out]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_noise_depends_on_the_generator() -> None:
    layer, x, rng = NoisyLinear(4, 3), torch.randn(2, 4), make_generator("a")
    outputs = []
    for generator in (rng, rng, make_generator("a")):
        layer.sample_noise(generator)
        outputs.append(layer(x))
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_scale_of_the_noise_is_trained() -> None:
    layer = NoisyLinear(4, 3)
    layer.sample_noise(make_generator("noise"))
    layer(torch.ones(1, 4)).sum().backward()
    for scale in (layer.weight_scale, layer.bias_scale):
        assert scale.grad is not None
        assert scale.grad.abs().sum() > 0


# ---------------------------------------------------------------- dueling


def test_dueling_by_hand() -> None:
    head = make_head(ScalarHead, dueling=True)
    with torch.no_grad():
        for layer, bias in ((head.advantage, [1.0, 2.0, 6.0]), (head.value, [10.0])):
            assert isinstance(layer, nn.Linear)
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor(bias))
    # The mean advantage is 3.
    assert head(torch.randn(1, FEATURES)).squeeze(-1).tolist() == [[8.0, 9.0, 13.0]]


def test_dueling_takes_the_mean_over_the_actions_of_one_sample_and_atom() -> None:
    head, features = make_head(QuantileHead, dueling=True, quantiles=2), torch.randn(4, FEATURES)
    assert head.value is not None
    output, value = head(features), head.value(features)
    advantage = head.advantage(features).reshape(4, ACTIONS, 2)
    for sample in range(4):
        for atom in range(2):
            mean = sum(advantage[sample, action, atom] for action in range(ACTIONS)) / ACTIONS
            expected = value[sample, atom] + advantage[sample, :, atom] - mean
            torch.testing.assert_close(output[sample, :, atom], expected)


def test_streams_may_have_a_hidden_layer_each() -> None:
    head, features = make_head(ScalarHead, dueling=True, hidden_units=7), torch.randn(5, FEATURES)
    assert isinstance(head.value, nn.Sequential)
    assert isinstance(head.advantage, nn.Sequential)
    shapes = [tuple(parameter.shape) for stream in (head.advantage, head.value) for parameter in stream.parameters()]
    assert shapes == [(7, FEATURES), (7,), (ACTIONS, 7), (ACTIONS,), (7, FEATURES), (7,), (1, 7), (1,)]
    value = head.value[2](head.value[0](features).clamp(min=0))
    advantage = head.advantage[2](head.advantage[0](features).clamp(min=0))
    torch.testing.assert_close(head(features).squeeze(-1), value + advantage - advantage.mean(1, keepdim=True))


@pytest.mark.parametrize("kind", [ScalarHead, CategoricalHead, QuantileHead])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("hidden", [0, 6])
def test_all_options_combine(kind: type[QHead], dueling: bool, noisy: bool, hidden: int) -> None:
    head = make_head(kind, dueling, noisy, hidden_units=hidden)
    output = head(torch.randn(5, FEATURES))
    assert output.shape == (5, ACTIONS, head.shape[1])
    assert head.values(output).shape == (5, ACTIONS)  # type: ignore[operator]
    assert sum(isinstance(layer, NoisyLinear) for layer in head.modules()) == noisy * (1 + dueling) * (1 + bool(hidden))
    loss = head.loss(output[:, 0], output[:, 1].detach(), torch.ones(5), torch.ones(5))  # type: ignore[operator]
    assert loss.shape == (5,)
    loss.sum().backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    assert all(gradient is not None for gradient in gradients)


# ---------------------------------------------------------------- values and losses


def test_scalar_loss_by_hand() -> None:
    head = make_head(ScalarHead)
    q_taken, next_q = torch.tensor([[1.0], [1.0]]), torch.tensor([[2.0], [9.0]])
    rewards, discounts = torch.tensor([0.5, 3.0]), torch.tensor([0.5, 0.0])
    # Target 0.5 + 0.5 * 2 = 1.5, loss 0.5 * 0.5^2. The second transition is terminal: target 3, loss 2 - 0.5.
    assert head.loss(q_taken, next_q, rewards, discounts).tolist() == [0.125, 1.5]  # type: ignore[operator]


def test_td_errors_invert_the_scalar_loss_and_are_the_losses_of_other_heads() -> None:
    errors = torch.tensor([0.0, 0.3, 1.0, 2.5])
    head = make_head(ScalarHead)
    losses = head.loss(torch.zeros(4, 1), torch.zeros(4, 1), errors, torch.zeros(4))  # type: ignore[operator]
    torch.testing.assert_close(head.td_errors(losses), errors)
    assert torch.equal(make_head(QuantileHead).td_errors(losses), losses)


def test_categorical_values_and_loss_by_hand() -> None:
    head = make_head(CategoricalHead, atoms=3, low=-1, high=1)
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert float(head.values(logits)) == pytest.approx(-0.25)  # type: ignore[operator]
    # Next return 1, so the target is 0.25 + 0.5 * 1 = 0.75: a quarter of the mass at 0, three quarters at 1.
    certain = torch.tensor([[0.0, 0.0, 100.0]])
    loss = head.loss(logits, certain, torch.tensor([0.25]), torch.tensor([0.5]))  # type: ignore[operator]
    assert loss.tolist() == [pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.25)))]
    # Terminal, with reward -1: the loss is that of the first atom alone.
    loss = head.loss(logits, certain, torch.tensor([-1.0]), torch.tensor([0.0]))  # type: ignore[operator]
    assert loss.tolist() == [pytest.approx(-math.log(0.5))]


def test_categorical_bounds_are_ordered() -> None:
    with pytest.raises(ValidationError, match="low must be below high"):
        CategoricalHead.Config(low=1, high=1)


def test_default_numbers_of_quantiles_and_atoms_are_those_of_the_papers() -> None:
    assert QuantileHead.Config().quantiles == 200
    assert CategoricalHead.Config().atoms == 51


def test_quantile_values_and_loss_by_hand() -> None:
    head = make_head(QuantileHead, quantiles=2)
    q_taken, next_q = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 6.0]])
    assert float(head.values(q_taken)) == 1.0  # type: ignore[operator]
    # Targets 1 + 0.5 * (0, 6) = (1, 4): the numbers of the loss's own test.
    loss = head.loss(q_taken, next_q, torch.tensor([1.0]), torch.tensor([0.5]))  # type: ignore[operator]
    assert loss.tolist() == [pytest.approx(1.125)]


@pytest.mark.parametrize("kind", [ScalarHead, CategoricalHead, QuantileHead])
def test_every_loss_moves_values_to_their_target(kind: type[QHead]) -> None:
    """The target is 1 + 0.5 * 2."""
    head = make_head(kind, **({"low": -4, "high": 4, "atoms": 33} if kind is CategoricalHead else {}))
    next_q = torch.full((1, head.shape[1]), 2.0)
    if kind is CategoricalHead:
        next_q = torch.where(head.support == 2, 100.0, 0.0).unsqueeze(0)  # type: ignore[arg-type,operator]
    q_taken = torch.zeros(1, head.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([q_taken], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        head.loss(q_taken, next_q, torch.ones(1), torch.full((1,), 0.5)).sum().backward()  # type: ignore[operator]
        optimizer.step()
    assert float(head.values(q_taken.detach().unsqueeze(0))) == pytest.approx(2, abs=0.1)  # type: ignore[operator]
