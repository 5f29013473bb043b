"""Gaussian latents against numbers worked by hand and torch.distributions."""

from __future__ import annotations

import math

import torch
from torch.distributions import Normal
from torch.distributions import kl_divergence as torch_kl_divergence

from reverie.functional.gaussian import entropy, kl_divergence, kl_losses, mean_and_std, rsample_normal


def statistics(*pairs: tuple[float, float]) -> torch.Tensor:
    """(2, S) from pairs of mean and deviation."""
    return torch.tensor(pairs).T.contiguous()


def test_deviations_stay_above_the_minimum() -> None:
    found = mean_and_std(torch.tensor([1.0, 2.0, -100.0, 0.0]), 0.1)
    torch.testing.assert_close(found, torch.tensor([[1.0, 2.0], [0.1, 0.1 + math.log(2)]]))


def test_samples_by_hand() -> None:
    drawn = rsample_normal(statistics((1.0, 2.0), (-1.0, 0.5)), torch.tensor([0.5, -2.0]))
    assert drawn.tolist() == [2.0, -2.0]


def test_divergence_and_entropy_agree_with_torch() -> None:
    one, other = statistics((0.3, 0.5), (-1.0, 2.0)), statistics((0.0, 1.0), (1.0, 0.7))
    wanted = torch_kl_divergence(Normal(*one), Normal(*other)).sum()
    torch.testing.assert_close(kl_divergence(one, other), wanted)
    assert float(kl_divergence(one, one)) == 0
    torch.testing.assert_close(entropy(one), Normal(*one).entropy().sum())
    # by hand: a mean that is one deviation away costs half a nat
    torch.testing.assert_close(kl_divergence(statistics((1.0, 1.0)), statistics((0.0, 1.0))), torch.tensor(0.5))


def test_each_kl_half_trains_one_side_and_none_below_the_free_nats() -> None:
    posterior = statistics((2.0, 1.0)).requires_grad_()
    prior = statistics((0.0, 1.0)).requires_grad_()
    dynamics, representation = kl_losses(posterior, prior, 1.0)
    assert dynamics.item() == representation.item() == 2.0
    pulled = torch.autograd.grad(dynamics, [posterior, prior], allow_unused=True)
    assert pulled[0] is None
    assert pulled[1] is not None
    assert pulled[1][0].tolist() == [-2.0]
    pulled = torch.autograd.grad(representation, [posterior, prior], allow_unused=True)
    assert pulled[1] is None
    assert (kl_losses(posterior, prior, 3.0)[0]).item() == 3.0
