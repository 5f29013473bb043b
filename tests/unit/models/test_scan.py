"""The gradient of following observations, written out, against the one that autograd finds for the same steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie import backend
from reverie.core.rng import make_generator
from reverie.functional.categorical import mix_uniform, straight_through
from reverie.models.rssm import RSSM, Latent, Observed, RSSMConfig

CONFIG = RSSMConfig(deter=8, hidden=6, stoch=3, classes=4, blocks=2, unimix=0.05)
ACTIONS, TOKENS, COUNT, STEPS = 2, 5, 3, 6


def normal(*shape: int, seed: int) -> Tensor:
    return torch.as_tensor(make_generator(seed, "normal").standard_normal(shape))


@pytest.fixture
def rssm() -> RSSM:
    """In double precision, with weights that are nowhere 0 or 1."""
    with backend.seeded(make_generator(0)):
        model = RSSM(CONFIG, ACTIONS, TOKENS).double()
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def step_by_step(
    rssm: RSSM, latent: Latent, tokens: Tensor, actions: Tensor, is_first: Tensor, noise: Tensor
) -> Observed:
    """The same by layers, left to autograd."""
    keep = (~is_first).double().unsqueeze(-1)
    latents, posteriors = [], []
    for step in range(tokens.shape[1]):
        before = Latent(*(part * keep[:, step] for part in latent))
        deter = rssm._move(before, rssm._project_action(actions[:, step] * keep[:, step]))
        hidden = rssm.posterior_hidden(rssm.posterior_deter(deter) + rssm.posterior_token(tokens[:, step]))
        chance = mix_uniform(rssm.posterior_output(hidden).unflatten(-1, (4, 3)), CONFIG.unimix)
        latent = Latent(deter, straight_through(rssm.draw(chance.detach(), noise[:, step]), chance).flatten(-2))
        latents.append(latent.features)
        posteriors.append(chance)
    deters, stochs = torch.stack(latents, 1).split([CONFIG.deter, CONFIG.width], -1)
    return Observed(Latent(deters, stochs), torch.stack(posteriors, 1))


def inputs() -> tuple[Latent, Tensor, Tensor, Tensor, Tensor]:
    start = Latent(normal(COUNT, 8, seed=1).tanh(), normal(COUNT, 12, seed=2))
    is_first = torch.zeros(COUNT, STEPS, dtype=torch.bool)
    is_first[0, 0] = is_first[1, 3] = True
    uniform = torch.as_tensor(make_generator(5).random((COUNT, STEPS, 3)))
    return start, normal(COUNT, STEPS, TOKENS, seed=3), 0.4 * normal(COUNT, STEPS, ACTIONS, seed=4), is_first, uniform


def test_values_and_gradients_equal_those_of_single_steps(rssm: RSSM) -> None:
    start, tokens, actions, is_first, uniform = inputs()
    named = dict(rssm.named_parameters())
    named |= {"deter": start.deter, "stoch": start.stoch, "tokens": tokens, "actions": actions}
    found = []
    for observe in (rssm.observe, lambda *given: step_by_step(rssm, *given)):
        for tensor in named.values():
            tensor.requires_grad_()
        observed = observe(start, tokens, actions, is_first, uniform)
        parts = (*observed.latent, observed.posterior)
        total = sum((part * normal(*part.shape, seed=6 + index)).sum() for index, part in enumerate(parts))
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        found.append((parts, dict(zip(named, gradients, strict=True))))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs)
    for name, gradient in their_gradients.items():
        if name.startswith("prior"):
            assert our_gradients[name] is None
        else:
            assert gradient.abs().max() > 1e-3, name
            torch.testing.assert_close(our_gradients[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


def test_each_output_alone_has_its_gradient(rssm: RSSM) -> None:
    """Autograd hands in nothing, or zeros, for outputs that are not used."""
    start, tokens, *others = inputs()
    for index in range(3):
        gradients = []
        for observe in (rssm.observe, lambda *given: step_by_step(rssm, *given)):
            seen = tokens.clone().requires_grad_()
            observed = observe(start, seen, *others)
            part = (*observed.latent, observed.posterior)[index]
            gradients.append(torch.autograd.grad((part * normal(*part.shape, seed=9)).sum(), seen)[0])
        torch.testing.assert_close(*gradients)


def test_observing_without_gradients_gives_the_same_bits(rssm: RSSM) -> None:
    with torch.no_grad():
        quick = rssm.observe(*inputs())
    slow = rssm.observe(*inputs())
    assert torch.equal(quick.latent.features, slow.latent.features)
    assert torch.equal(quick.posterior, slow.posterior)
