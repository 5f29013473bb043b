"""The RSSM against a slow form that does one step at a time and hoists nothing out of the loop."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from reverie import backend
from reverie.core.rng import make_generator
from reverie.models.rssm import RSSM, Latent, RSSMConfig
from reverie.nets.choices import Chosen, Features, plain

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
    """Tokens, actions (some of them too big), starts of episodes, noise."""
    tokens, actions = uniform(COUNT, STEPS, TOKENS, seed=1) - 0.5, 4 * uniform(COUNT, STEPS, ACTIONS, seed=2) - 2
    is_first = torch.zeros(COUNT, STEPS, dtype=torch.bool)
    is_first[0, 0] = is_first[1, 3] = True
    return tokens, actions, is_first, uniform(COUNT, STEPS, CONFIG.stoch, seed=3)


def start(rssm: RSSM) -> Latent:
    stoch = rssm.draw(torch.full((COUNT, 4, 3), 0.25), uniform(COUNT, 3, seed=4))
    return Latent(uniform(COUNT, 8, seed=5), stoch.flatten(1))


def slow_move(rssm: RSSM, latent: Latent, action: Tensor) -> Tensor:
    clipped = action.clamp(-1, 1)
    parts = [rssm.from_deter(latent.deter), rssm.from_stoch(latent.stoch), rssm.from_action(clipped)]
    return rssm.core(latent.deter, rssm.core.shared(torch.cat(parts, -1)))


def slow_sample(logits: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
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
def test_observing_equals_the_slow_form(rssm: RSSM) -> None:
    tokens, actions, is_first, noise = inputs()
    found = rssm.observe(start(rssm), tokens, actions, is_first, noise)
    for env in range(COUNT):
        latent = Latent(*(part[env : env + 1] for part in start(rssm)))
        for step in range(STEPS):
            action = actions[env, step][None]
            if is_first[env, step]:
                latent, action = rssm.initial(1), torch.zeros(1, ACTIONS)
            deter = slow_move(rssm, latent, action)
            hidden = rssm.posterior_deter(deter) + tokens[env, step] @ rssm.posterior_token.weight.T
            logits = rssm.posterior_output(rssm.posterior_hidden(hidden))
            probability, sample = slow_sample(logits[0], noise[env, step])
            latent = Latent(deter, sample.view(1, -1))
            torch.testing.assert_close(found.latent.deter[env, step], deter[0])
            torch.testing.assert_close(found.posterior[env, step], probability)
            torch.testing.assert_close(found.latent.stoch[env, step], sample.flatten())


@torch.no_grad()
@pytest.mark.parametrize("fewest", [1, 256])
@pytest.mark.parametrize("begins_anew", [False, True])
def test_imagining_equals_the_slow_form(
    rssm: RSSM, begins_anew: bool, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether rows are picked or not, also from the beginning of an episode, where no class is chosen yet."""
    monkeypatch.setattr("reverie.models.rssm.FEWEST_PICKED", fewest)
    noise = uniform(4, COUNT, CONFIG.stoch, seed=6)

    def policy(features: Features, step: int) -> Tensor:
        return plain(features)[:, :ACTIONS] * (step + 1)

    latent = rssm.initial(COUNT) if begins_anew else start(rssm)
    found = plain(rssm.imagine(latent, policy, noise))
    torch.testing.assert_close(found[0], latent.features)
    for step in range(4):
        deter = slow_move(rssm, latent, policy(latent.features, step))
        logits = rssm.prior_output(rssm.prior_layers(deter))
        samples = [slow_sample(logits[n], noise[step, n])[1].flatten() for n in range(COUNT)]
        latent = Latent(deter, torch.stack(samples))
        torch.testing.assert_close(found[step + 1], latent.features)


@torch.no_grad()
def test_choices_looked_up_move_the_memory_as_choices_projected(rssm: RSSM) -> None:
    noise = uniform(3, COUNT, CONFIG.stoch, seed=6)

    def policy(features: Features, step: int) -> Tensor:
        return torch.eye(ACTIONS)[(torch.arange(COUNT) + step) % ACTIONS]

    projected = plain(rssm.imagine(start(rssm), policy, noise))
    rssm.actions_are_choices = True
    torch.testing.assert_close(plain(rssm.imagine(start(rssm), policy, noise)), projected)


@torch.no_grad()
@pytest.mark.parametrize("begins_anew", [False, True])
def test_dreams_know_where_their_ones_are(rssm: RSSM, begins_anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    latent, dreams = rssm.initial(COUNT) if begins_anew else start(rssm), []
    for fewest, kind in ((1, Chosen), (10**9, Tensor)):
        monkeypatch.setattr("reverie.models.rssm.FEWEST_PICKED", fewest)
        noise = uniform(3, COUNT, CONFIG.stoch)
        dreams.append(rssm.imagine(latent, lambda features, step: plain(features)[:, :ACTIONS], noise))
        assert isinstance(dreams[-1], kind)
    torch.testing.assert_close(*map(plain, dreams))
    torch.testing.assert_close(plain(dreams[0])[0], latent.features)


@torch.no_grad()
def test_a_scan_in_two_pieces_is_one_scan(rssm: RSSM) -> None:
    whole = rssm.observe(start(rssm), *inputs()).latent
    first = rssm.observe(start(rssm), *(part[:, :2] for part in inputs())).latent
    between = Latent(first.deter[:, -1], first.stoch[:, -1])
    second = rssm.observe(between, *(part[:, 2:] for part in inputs())).latent
    torch.testing.assert_close(torch.cat([first.features, second.features], 1), whole.features)


@torch.no_grad()
def test_nothing_before_a_first_row_counts(rssm: RSSM) -> None:
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


def test_dreams_have_no_gradient(rssm: RSSM) -> None:
    seen = rssm.imagine(start(rssm), lambda features, step: plain(features)[:, :ACTIONS], uniform(2, COUNT, 3))
    assert not plain(seen).requires_grad


def test_blocks_must_divide_the_memory() -> None:
    with pytest.raises(ValidationError, match="must divide"):
        RSSMConfig(deter=9, blocks=2)


def test_actions_that_are_too_big_still_have_a_slope(rssm: RSSM) -> None:
    """The slope at 1 in their direction, made smaller as the action is; of twice the size, half of it."""

    def slope(*action: float) -> Tensor:
        given = torch.tensor([action], requires_grad=True)
        (found,) = torch.autograd.grad(rssm.dream(start(rssm), lambda *_: given, uniform(1, COUNT, 3)).sum(), given)
        return found[0]

    inside, beyond = slope(1.0, -1.0), slope(2.0, -4.0)
    assert (inside != 0).all()
    torch.testing.assert_close(beyond, inside / torch.tensor([2.0, 4.0]))
    torch.testing.assert_close(slope(1.0, 0.5), slope(1.5, 0.5) * torch.tensor([1.5, 1.0]))


def test_latents_are_stored_as_bytes_and_come_back() -> None:
    """With as many classes as there can be; a variable without a class has none afterwards."""
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
