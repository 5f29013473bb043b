"""The RSSM against a reference implementation that does one step at a time and precomputes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from reverie import backend
from reverie.core.rng import make_generator
from reverie.models.latent import Decision, Latent, Policy
from reverie.models.rssm import RSSM, RSSMConfig
from reverie.nets.one_hot import Features, OneHotFeatures, to_dense

CONFIG = RSSMConfig(deter=8, hidden=6, stoch=3, classes=4, blocks=2)
ACTIONS, TOKENS, COUNT, STEPS = 2, 5, 3, 6


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(make_generator(seed, "uniform").random(shape), dtype=torch.float32)


@pytest.fixture
def rssm() -> RSSM:
    with backend.seeded(make_generator(0)):
        model = RSSM(CONFIG, ACTIONS, TOKENS)
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, actions (some out of bounds), first rows, noise."""
    tokens, actions = uniform(COUNT, STEPS, TOKENS, seed=1) - 0.5, 4 * uniform(COUNT, STEPS, ACTIONS, seed=2) - 2
    is_first = torch.zeros(COUNT, STEPS, dtype=torch.bool)
    is_first[0, 0] = is_first[1, 3] = True
    return tokens, actions, is_first, uniform(COUNT, STEPS, CONFIG.stoch, seed=3)


def start(rssm: RSSM) -> Latent:
    stoch = rssm.sample(torch.full((COUNT, 4, 3), 0.25), uniform(COUNT, 3, seed=4))
    return Latent(uniform(COUNT, 8, seed=5), stoch.flatten(1))


def encoded(actions: Callable[[Features, int], Tensor]) -> Policy:
    """A policy that returns encoded actions."""

    def decide(features: Features, step: int) -> Decision:
        action = actions(features, step)
        return Decision(action, encoded=action)

    return decide


FIRST_COLUMNS = encoded(lambda features, step: to_dense(features)[:, :ACTIONS])


def imagine(rssm: RSSM, latent: Latent, policy: Policy, noise: Tensor) -> Tensor:
    """Dense features (H + 1, N, F)."""
    return to_dense(rssm.imagine(latent, policy, noise)[0])


def plain_next_deter(rssm: RSSM, latent: Latent, action: Tensor) -> Tensor:
    clipped = action.clamp(-1, 1)
    parts = [rssm.from_deter(latent.deter), rssm.from_stoch(latent.stoch), rssm.from_action(clipped)]
    return rssm.core(latent.deter, rssm.core.shared(torch.cat(parts, -1)))


def plain_sample(logits: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities and one-hot samples (classes, variables), one variable after the other."""
    probability = 0.99 * logits.view(4, 3).softmax(0) + 0.01 / 4
    sample = torch.zeros(4, 3)
    for variable in range(3):
        total, index = float(probability[0, variable]), 0
        while total <= float(noise[variable]) and index < 3:
            index += 1
            total += float(probability[index, variable])
        sample[index, variable] = 1
    return probability, sample


@torch.no_grad()
def test_observing_equals_the_reference_implementation(rssm: RSSM) -> None:
    tokens, actions, is_first, noise = inputs()
    found = rssm.observe(start(rssm), tokens, actions, is_first, noise)
    for env in range(COUNT):
        latent = Latent(*(part[env : env + 1] for part in start(rssm)))
        for step in range(STEPS):
            action = actions[env, step][None]
            if is_first[env, step]:
                latent, action = rssm.initial(1), torch.zeros(1, ACTIONS)
            deter = plain_next_deter(rssm, latent, action)
            hidden = rssm.posterior_deter(deter) + tokens[env, step] @ rssm.posterior_token.weight.T
            logits = rssm.posterior_output(rssm.posterior_hidden(hidden))
            probability, sample = plain_sample(logits[0], noise[env, step])
            latent = Latent(deter, sample.view(1, -1))
            torch.testing.assert_close(found.latent.deter[env, step], deter[0])
            torch.testing.assert_close(found.params[env, step], probability)
            torch.testing.assert_close(found.latent.stoch[env, step], sample.flatten())


@torch.no_grad()
@pytest.mark.parametrize("fewest", [1, 256])
@pytest.mark.parametrize("is_initial", [False, True])
def test_imagining_equals_the_reference_implementation(
    rssm: RSSM, is_initial: bool, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without lookups, also at the start of an episode, where variables have no class."""
    monkeypatch.setattr("reverie.models.rssm.MIN_LOOKUP_COLUMNS", fewest)
    noise = uniform(4, COUNT, CONFIG.stoch, seed=6)

    def actions(features: Features, step: int) -> Tensor:
        return to_dense(features)[:, :ACTIONS] * (step + 1)

    latent = rssm.initial(COUNT) if is_initial else start(rssm)
    found = imagine(rssm, latent, encoded(actions), noise)
    torch.testing.assert_close(found[0], latent.features)
    for step in range(4):
        deter = plain_next_deter(rssm, latent, actions(latent.features, step))
        logits = rssm.prior_output(rssm.prior_layers(deter))
        samples = [plain_sample(logits[n], noise[step, n])[1].flatten() for n in range(COUNT)]
        latent = Latent(deter, torch.stack(samples))
        torch.testing.assert_close(found[step + 1], latent.features)


@torch.no_grad()
def test_looked_up_discrete_actions_equal_projected_ones(rssm: RSSM) -> None:
    noise = uniform(3, COUNT, CONFIG.stoch, seed=6)

    policy = encoded(lambda features, step: torch.eye(ACTIONS)[(torch.arange(COUNT) + step) % ACTIONS])
    projected = imagine(rssm, start(rssm), policy, noise)
    rssm.has_discrete_actions = True
    torch.testing.assert_close(imagine(rssm, start(rssm), policy, noise), projected)


@torch.no_grad()
@pytest.mark.parametrize("is_initial", [False, True])
def test_features_become_one_hot_above_a_number_of_columns(
    rssm: RSSM, is_initial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    latent, imagined = rssm.initial(COUNT) if is_initial else start(rssm), []
    for fewest, kind in ((1, OneHotFeatures), (10**9, Tensor)):
        monkeypatch.setattr("reverie.models.rssm.MIN_LOOKUP_COLUMNS", fewest)
        noise = uniform(3, COUNT, CONFIG.stoch)
        imagined.append(rssm.imagine(latent, FIRST_COLUMNS, noise)[0])
        assert isinstance(imagined[-1], kind)
    torch.testing.assert_close(*map(to_dense, imagined))
    torch.testing.assert_close(to_dense(imagined[0])[0], latent.features)


@torch.no_grad()
def test_scan_in_two_pieces_equals_one_scan(rssm: RSSM) -> None:
    whole = rssm.observe(start(rssm), *inputs()).latent
    first = rssm.observe(start(rssm), *(part[:, :2] for part in inputs())).latent
    between = Latent(first.deter[:, -1], first.stoch[:, -1])
    second = rssm.observe(between, *(part[:, 2:] for part in inputs())).latent
    torch.testing.assert_close(torch.cat([first.features, second.features], 1), whole.features)


@torch.no_grad()
def test_rows_before_a_first_row_have_no_effect(rssm: RSSM) -> None:
    tokens, actions, is_first, noise = inputs()
    before = rssm.observe(start(rssm), tokens, actions, is_first, noise).latent.features
    tokens[1, :3] += 1
    actions[1, :4] += 1  # also the action that seems to lead to the first row
    after = rssm.observe(rssm.initial(COUNT), tokens, actions, is_first, noise).latent.features
    assert torch.equal(after[1, 3:], before[1, 3:])
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[2], before[2])


def test_gradients_flow_through_samples_to_earlier_tokens(rssm: RSSM) -> None:
    tokens, *others = inputs()
    tokens.requires_grad_()
    last = rssm.observe(start(rssm), tokens, *others).latent.stoch[2, -1]
    weight = torch.arange(12.0)
    (gradient,) = torch.autograd.grad((last * weight).sum(), tokens)
    assert (gradient[2] != 0).any(-1).all()
    assert (gradient[:2] == 0).all()


def test_imagination_has_no_gradient(rssm: RSSM) -> None:
    assert not imagine(rssm, start(rssm), FIRST_COLUMNS, uniform(2, COUNT, 3)).requires_grad


def test_blocks_must_divide_deter() -> None:
    with pytest.raises(ValidationError, match="must divide"):
        RSSMConfig(deter=9, blocks=2)


def test_actions_out_of_bounds_still_have_a_gradient(rssm: RSSM) -> None:
    """It is the gradient at the bound, divided by the factor by which the action exceeds it."""

    def slope(*action: float) -> Tensor:
        given = torch.tensor([action], requires_grad=True)
        features, _ = rssm.imagine_with_gradient(start(rssm), encoded(lambda *_: given), uniform(1, COUNT, 3))
        (found,) = torch.autograd.grad(features.sum(), given)
        return found[0]

    inside, beyond = slope(1.0, -1.0), slope(2.0, -4.0)
    assert (inside != 0).all()
    torch.testing.assert_close(beyond, inside / torch.tensor([2.0, 4.0]))
    torch.testing.assert_close(slope(1.0, 0.5), slope(1.5, 0.5) * torch.tensor([1.5, 1.0]))


def test_latents_stored_as_bytes_are_restored() -> None:
    """With the largest number of classes. A variable without a class has none after restoring."""
    with backend.seeded(make_generator(0)):
        rssm = RSSM(RSSMConfig(deter=2, hidden=2, stoch=255, classes=255, blocks=1), ACTIONS, TOKENS)
    stoch = torch.cat([torch.eye(255).view(1, -1), rssm.initial(1).stoch])
    stored = rssm.pack(Latent(torch.tensor([[0.5, -1.0], [0.0, 0.0]]), stoch))
    assert stored["stoch"].dtype == "uint8"
    assert stored["stoch"].tolist() == [list(range(1, 256)), [0] * 255]
    found = rssm.unpack({key: torch.as_tensor(value) for key, value in stored.items()})
    assert torch.equal(found.stoch, stoch)
    assert found.deter.tolist() == [[0.5, -1.0], [0.0, 0.0]]
    with pytest.raises(ValidationError, match="classes"):
        RSSMConfig(classes=256)
