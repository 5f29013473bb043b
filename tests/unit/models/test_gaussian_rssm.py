"""The RSSM with Gaussian latents against a reference implementation, and what it stores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie.backend import DEFAULT, seeded
from reverie.core.rng import make_generator
from reverie.models.gaussian_rssm import GaussianRSSM
from reverie.models.latent import Decision, Latent
from reverie.models.rssm import MIN_LOOKUP_COLUMNS, RSSMConfig

CONFIG = RSSMConfig(latents="gaussian", deter=8, hidden=6, stoch=3, blocks=2)


@pytest.fixture
def rssm() -> GaussianRSSM:
    with seeded(make_generator(0)):
        return GaussianRSSM(CONFIG, 2, 5)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(make_generator(seed, "numbers").standard_normal(shape), dtype=torch.float32)


def test_latent_sizes() -> None:
    assert (CONFIG.width, CONFIG.outputs) == (3, 6)
    assert (RSSMConfig(stoch=3, classes=4).width, RSSMConfig(stoch=3, classes=4).outputs) == (12, 12)


def test_observing_equals_single_steps(rssm: GaussianRSSM) -> None:
    tokens, actions, noise = numbers(2, 4, 5, seed=1), numbers(2, 4, 2, seed=2), numbers(2, 4, 3, seed=3)
    is_first = torch.zeros(2, 4, dtype=torch.bool)
    is_first[0, 2] = True
    start = Latent(numbers(2, 8, seed=4), numbers(2, 3, seed=5))
    post = rssm.observe(start, tokens, actions, is_first, noise)
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
            torch.testing.assert_close(post.latent.deter[row, step], deter[0])
            torch.testing.assert_close(post.latent.stoch[row, step], stoch[0])
            torch.testing.assert_close(post.params[row, step], torch.stack([mean[0], deviation[0]]))


def test_imagination_with_and_without_gradients_agrees(rssm: GaussianRSSM) -> None:
    start, noise = Latent(numbers(4, 8), numbers(4, 3, seed=1)), numbers(5, 4, 3, seed=2)
    action = numbers(4, 2, seed=3).requires_grad_()
    features, _ = rssm.imagine_with_gradient(start, lambda *_: Decision(action, encoded=action), noise)
    torch.testing.assert_close(features, rssm.imagine(start, lambda *_: Decision(action, encoded=action), noise)[0])
    assert features.shape == (6, 4, 11)
    (gradient,) = torch.autograd.grad(features[-1].sum(), action)
    assert (gradient != 0).any()


def test_latents_are_stored_unchanged(rssm: GaussianRSSM) -> None:
    latent = Latent(numbers(2, 8), numbers(2, 3, seed=1))
    stored = rssm.unpack(DEFAULT.to_tensors(rssm.pack(latent)))
    assert torch.equal(stored.features, latent.features)
    assert rssm.sample_noise(make_generator(0), 2, 5).shape == (2, 5, 3)
    assert rssm.sample_noise(make_generator(0), 9, 9).min() < 0


def test_many_gaussian_latents_are_not_stored_as_indices() -> None:
    """As many categorical columns would be stored as indices."""
    config = CONFIG.model_copy(update={"stoch": MIN_LOOKUP_COLUMNS})
    with seeded(make_generator(0)):
        rssm = GaussianRSSM(config, 2, 5)
    start = Latent(numbers(4, 8), numbers(4, MIN_LOOKUP_COLUMNS, seed=1))
    noise, action = numbers(3, 4, MIN_LOOKUP_COLUMNS, seed=2), numbers(4, 2, seed=3)
    features, _ = rssm.imagine(start, lambda *_: Decision(action, encoded=action), noise)
    plain, _ = rssm.imagine_with_gradient(start, lambda *_: Decision(action, encoded=action), noise)
    torch.testing.assert_close(features, plain)
