"""The scan over observations and its written-out gradient against ``observe_stepwise`` and autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie import backend
from reverie.core.rng import make_generator
from reverie.models.latent import Latent
from reverie.models.rssm import RSSM, RSSMConfig

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
    for observe in (rssm.observe, rssm.observe_stepwise):
        for tensor in named.values():
            tensor.requires_grad_()
        post = observe(start, tokens, actions, is_first, uniform)
        outputs = (*post.latent, post.params)
        total = sum((output * normal(*output.shape, seed=6 + index)).sum() for index, output in enumerate(outputs))
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        found.append((outputs, dict(zip(named, gradients, strict=True))))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs)
    for name, gradient in their_gradients.items():
        if name.startswith("prior"):
            assert our_gradients[name] is None
        else:
            assert gradient.abs().max() > 1e-3, name
            torch.testing.assert_close(our_gradients[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


def test_each_output_alone_has_its_gradient(rssm: RSSM) -> None:
    """Autograd passes None, or zeros, for outputs that are not used."""
    start, tokens, *others = inputs()
    for index in range(3):
        gradients = []
        for observe in (rssm.observe, rssm.observe_stepwise):
            inputs_now = tokens.clone().requires_grad_()
            post = observe(start, inputs_now, *others)
            output = (*post.latent, post.params)[index]
            gradients.append(torch.autograd.grad((output * normal(*output.shape, seed=9)).sum(), inputs_now)[0])
        torch.testing.assert_close(*gradients)


def test_observing_without_gradients_gives_the_same_bits(rssm: RSSM) -> None:
    with torch.no_grad():
        without = rssm.observe(*inputs())
    with_gradients = rssm.observe(*inputs())
    assert torch.equal(without.latent.features, with_gradients.latent.features)
    assert torch.equal(without.params, with_gradients.params)
