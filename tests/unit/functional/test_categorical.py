"""Categorical latents: numbers worked by hand, sample frequencies, and where gradients flow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from reverie.core.rng import make_generator
from reverie.functional.categorical import (
    entropy,
    kl_losses,
    log_mix_uniform,
    mix_uniform,
    one_hot,
    sample_one_hot,
    straight_through,
)

HALF = torch.tensor([[0.5], [0.5]])  # one variable of two classes: (K, S)
SKEWED = torch.tensor([[0.25], [0.75]])


def test_uniform_mix_by_hand() -> None:
    logits = torch.tensor([[0.0, 40.0], [0.0, 0.0]])  # two variables: even, and all on class 0
    torch.testing.assert_close(mix_uniform(logits, 0.01), torch.tensor([[0.5, 0.995], [0.5, 0.005]]))


def test_sampling_inverts_the_distribution_function() -> None:
    probability = torch.tensor([[0.2], [0.0], [0.5], [0.3]])
    uniform = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 0.99])
    drawn = sample_one_hot(probability.expand(6, 4, 1), uniform[:, None])
    assert drawn.argmax(-2).squeeze(-1).tolist() == [0, 0, 2, 2, 3, 3]
    assert (drawn.sum(-2) == 1).all()
    assert ((drawn == 0) | (drawn == 1)).all()


def test_sample_frequencies_match_the_probabilities() -> None:
    probability = mix_uniform(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]), 0.01)
    uniform = make_generator(1).random((40_000, 2), dtype=np.float32)
    drawn = sample_one_hot(probability.expand(40_000, 3, 2), torch.as_tensor(uniform))
    torch.testing.assert_close(drawn.mean(0), probability, atol=0.01, rtol=0)


def test_one_hot_has_classes_before_variables() -> None:
    assert one_hot(torch.tensor([[2, 0]]), 3).tolist() == [[[0, 1], [0, 0], [1, 0]]]


def test_straight_through_returns_the_sample_with_gradients_of_the_probabilities() -> None:
    logits = torch.tensor([[0.3], [-0.2], [0.1]], requires_grad=True)
    weight = torch.tensor([[1.0], [5.0], [-2.0]])
    sample = one_hot(torch.tensor([1]), 3)
    through = straight_through(sample, mix_uniform(logits, 0.01))
    assert torch.equal(through, sample)
    (found,) = torch.autograd.grad((through * weight).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad((mix_uniform(logits, 0.01) * weight).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_divergence_and_entropy_by_hand() -> None:
    # 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75) = 0.5 ln(4 / 3)
    expected = torch.tensor(0.5 * math.log(4 / 3))
    two = torch.cat([HALF, SKEWED], 1), torch.cat([SKEWED, SKEWED], 1)  # equal ones add nothing
    for posterior, prior in ((HALF, SKEWED), two):
        for half in kl_losses(posterior, prior.log(), 0.0):
            torch.testing.assert_close(half, expected)
    torch.testing.assert_close(entropy(torch.cat([HALF, HALF], 1)), torch.tensor(2 * math.log(2)))


def test_free_nats_clip_value_and_gradient() -> None:
    logits = torch.tensor([[0.0], [0.0]], requires_grad=True), torch.tensor([[0.0], [1.0]], requires_grad=True)
    posterior, prior = (mix_uniform(each, 0.0) for each in logits)
    dynamics, representation = kl_losses(posterior, prior.log(), free_nats=1.0)
    assert (float(dynamics.detach()), float(representation.detach())) == (1.0, 1.0)
    gradients = torch.autograd.grad(dynamics + representation, logits)
    assert all((gradient == 0).all() for gradient in gradients)


def test_each_kl_half_trains_one_side() -> None:
    logits = torch.tensor([[0.0], [0.0]], requires_grad=True), torch.tensor([[0.0], [1.0]], requires_grad=True)
    posterior, prior = (mix_uniform(each, 0.0) for each in logits)
    dynamics, representation = kl_losses(posterior, prior.log(), free_nats=0.0)
    torch.testing.assert_close(dynamics, representation)
    from_dynamics = torch.autograd.grad(dynamics, logits, allow_unused=True, retain_graph=True)
    from_representation = torch.autograd.grad(representation, logits, allow_unused=True)
    assert from_dynamics[0] is None
    assert from_representation[1] is None
    torch.testing.assert_close(from_dynamics[1], (prior - posterior).detach())  # of a cross entropy
    assert from_representation[0] is not None
    assert from_representation[0][1] < 0  # descent raises the class that the prior likes


@pytest.mark.parametrize("unimix", [0.0, 0.01])
@pytest.mark.parametrize("gap", [1.0, 110.0, 1e4])
def test_divergences_of_near_deterministic_distributions_match_double_precision(gap: float, unimix: float) -> None:
    """With logit gaps above 103 the smaller probability is 0 in single precision, and its logarithm infinite."""
    found, wanted = [], []
    for dtype, results in ((torch.float32, found), (torch.float64, wanted)):
        logits = torch.tensor([[gap, 0.0, gap], [0.0, gap, 0.0]], dtype=dtype, requires_grad=True)
        prior = torch.tensor([[0.0, gap, gap], [gap, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        probability = mix_uniform(logits, unimix)
        halves = kl_losses(probability, log_mix_uniform(prior, unimix), 0.0)
        results += [*halves, *torch.autograd.grad(sum(halves), (logits, prior))]
        results.append(entropy(probability))
    for single, double in zip(found, wanted, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)


def test_classes_with_underflowing_probability_cost_their_logit_gap() -> None:
    posterior = mix_uniform(torch.tensor([[110.0, 0.0], [0.0, 110.0]]), 0.0)
    log_prior = log_mix_uniform(torch.tensor([[0.0, 110.0], [110.0, 0.0]]), 0.0)
    assert (posterior == 0).sum() == 2
    for half in kl_losses(posterior, log_prior, 0.0):
        assert half.item() == pytest.approx(220)
    assert entropy(posterior).item() == 0
