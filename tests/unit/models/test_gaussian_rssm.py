"""The RSSM with Gaussian latents against a slow form, and what it stores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie import backend
from reverie.core.rng import make_generator
from reverie.models.gaussian_rssm import GaussianRSSM
from reverie.models.rssm import FEWEST_PICKED, Latent, RSSMConfig

CONFIG = RSSMConfig(latents="gaussian", deter=8, hidden=6, stoch=3, blocks=2)


@pytest.fixture
def rssm() -> GaussianRSSM:
    with backend.seeded(make_generator(0)):
        return GaussianRSSM(CONFIG, 2, 5)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(make_generator(seed, "numbers").standard_normal(shape), dtype=torch.float32)


def test_sizes_are_those_of_numbers() -> None:
    assert (CONFIG.width, CONFIG.outputs) == (3, 6)
    assert (RSSMConfig(stoch=3, classes=4).width, RSSMConfig(stoch=3, classes=4).outputs) == (12, 12)


def test_following_equals_one_step_after_the_other(rssm: GaussianRSSM) -> None:
    tokens, actions, noise = numbers(2, 4, 5, seed=1), numbers(2, 4, 2, seed=2), numbers(2, 4, 3, seed=3)
    is_first = torch.zeros(2, 4, dtype=torch.bool)
    is_first[0, 2] = True
    start = Latent(numbers(2, 8, seed=4), numbers(2, 3, seed=5))
    observed = rssm.observe(start, tokens, actions, is_first, noise)
    for row in range(2):
        deter, stoch = start.deter[row : row + 1], start.stoch[row : row + 1]
        for step in range(4):
            kept = 0.0 if is_first[row, step] else 1.0
            action = rssm.from_action((actions[row : row + 1, step] * kept).clamp(-1, 1))
            parts = [rssm.from_deter(deter * kept), rssm.from_stoch(stoch * kept), action]
            deter = rssm.core(deter * kept, rssm.core.shared(torch.cat(parts, -1)))
            hidden = rssm.posterior_deter(deter) + rssm.posterior_token(tokens[row : row + 1, step])
            mean, spread = rssm.posterior_output(rssm.posterior_hidden(hidden)).chunk(2, -1)
            deviation = torch.nn.functional.softplus(spread) + 0.1
            stoch = mean + deviation * noise[row, step]
            torch.testing.assert_close(observed.latent.deter[row, step], deter[0])
            torch.testing.assert_close(observed.latent.stoch[row, step], stoch[0])
            torch.testing.assert_close(observed.posterior[row, step], torch.stack([mean[0], deviation[0]]))


def test_both_ways_of_dreaming_agree_and_one_has_gradients(rssm: GaussianRSSM) -> None:
    start, noise = Latent(numbers(4, 8), numbers(4, 3, seed=1)), numbers(5, 4, 3, seed=2)
    action = numbers(4, 2, seed=3).requires_grad_()
    dreamt = rssm.dream(start, lambda features, step: action, noise)
    torch.testing.assert_close(dreamt, rssm.imagine(start, lambda features, step: action, noise))
    assert dreamt.shape == (6, 4, 11)
    (slope,) = torch.autograd.grad(dreamt[-1].sum(), action)
    assert (slope != 0).any()


def test_latents_are_stored_as_they_are(rssm: GaussianRSSM) -> None:
    latent = Latent(numbers(2, 8), numbers(2, 3, seed=1))
    stored = rssm.unpack(backend.to_tensors(rssm.pack(latent)))
    assert torch.equal(stored.features, latent.features)
    assert rssm.draw_noise(make_generator(0), 2, 5).shape == (2, 5, 3)
    assert rssm.draw_noise(make_generator(0), 9, 9).min() < 0


def test_many_latents_are_dreamt_as_numbers() -> None:
    """As many categorical columns would be picked as indices."""
    config = CONFIG.model_copy(update={"stoch": FEWEST_PICKED})
    with backend.seeded(make_generator(0)):
        rssm = GaussianRSSM(config, 2, 5)
    start = Latent(numbers(4, 8), numbers(4, FEWEST_PICKED, seed=1))
    noise, action = numbers(3, 4, FEWEST_PICKED, seed=2), numbers(4, 2, seed=3)
    dreamt = rssm.imagine(start, lambda features, step: action, noise)
    torch.testing.assert_close(dreamt, rssm.dream(start, lambda features, step: action, noise))
