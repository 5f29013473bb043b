"""Action distributions against torch.distributions and against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec
from reverie.nets.distributions import Categorical, Gaussian, Joint, MultiCategorical, TanhGaussian
from reverie.nets.heads import StateDependentHead, make_action_head


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_categorical_by_hand() -> None:
    policy = Categorical(tensor([[0.0, math.log(3.0)]]))  # probabilities 1/4 and 3/4
    assert policy.mode().tolist() == [1]
    assert policy.log_prob(torch.tensor([0])).item() == pytest.approx(math.log(0.25))
    assert policy.entropy().item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


def test_categorical_samples_follow_the_probabilities() -> None:
    noise = torch.as_tensor(make_generator("test").random((40_000, 3), dtype=np.float32))
    policy = Categorical(tensor([[0.1, 0.6, 0.3]]).log().expand(40_000, 3))
    shares = torch.bincount(policy.sample(noise), minlength=3) / 40_000
    assert torch.allclose(shares, tensor([0.1, 0.6, 0.3]), atol=0.01)


def test_categorical_accepts_uniform_noise_of_zero_and_almost_one() -> None:
    policy = Categorical(tensor([[0.0, 0.0]]))
    assert policy.sample(tensor([[0.0, 0.0]])).item() in (0, 1)
    assert policy.sample(tensor([[1.0, 0.0]])).item() == 0


def test_multi_categorical_log_probs_add_up() -> None:
    logits = tensor([[0.0, math.log(3.0), 0.0, 0.0, math.log(2.0)]])
    policy = MultiCategorical(logits, [2, 3], (2,))
    action = torch.tensor([[0, 2]])
    assert policy.log_prob(action).item() == pytest.approx(math.log(0.25 * 0.5))
    assert policy.mode().tolist() == [[1, 2]]
    parts = [Categorical(logits[:, :2]), Categorical(logits[:, 2:])]
    assert policy.entropy().item() == pytest.approx(sum(part.entropy().item() for part in parts))
    assert policy.sample(torch.rand(1, 5, generator=torch.Generator().manual_seed(0))).shape == (1, 2)


def test_gaussian_agrees_with_torch() -> None:
    mean, log_std = tensor([[0.5, -1.0], [2.0, 0.0]]), tensor([0.3, -0.7])
    policy, reference = Gaussian(mean, log_std), torch.distributions.Normal(mean, log_std.exp())
    action = tensor([[0.0, 0.0], [1.0, -0.5]])
    assert torch.allclose(policy.log_prob(action), reference.log_prob(action).sum(1))
    assert torch.allclose(policy.entropy(), reference.entropy().sum(1))
    assert torch.equal(policy.mode(), mean)
    assert torch.allclose(
        policy.sample(tensor([[1.0, 0.0], [0.0, -1.0]])), mean + tensor([[1, 0], [0, -1]]) * log_std.exp()
    )


def test_smooth_noise_matches_the_mean_and_std_of_the_policy() -> None:
    action = ActionSpec("continuous", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
    head = make_action_head(3, action, state_dependent=True, initial_log_std=-0.5)
    assert isinstance(head, StateDependentHead)
    features = tensor([[0.5, -1.0, 2.0]]).expand(50_000, 3)
    maps = torch.as_tensor(head.draw_map(make_generator("test"), 50_000))
    with torch.no_grad():
        samples, policy = head.explore(features, maps), head(features)
    assert isinstance(policy, Gaussian)
    assert torch.allclose(samples.mean(0), policy.mean[0], atol=0.03)
    assert torch.allclose(samples.std(0), policy.log_std[0].exp(), rtol=0.02)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (ActionSpec("discrete", (), "int64", (4,)), (5,)),
        (ActionSpec("multi_discrete", (2,), "int64", (3, 2)), (5, 2)),
        (ActionSpec("multi_binary", (2, 2), "int64", (2, 2, 2, 2)), (5, 2, 2)),
        (ActionSpec("continuous", (3,), "float32", low=(-1.0,) * 3, high=(1.0,) * 3), (5, 3)),
        (ActionSpec("continuous", (2, 2), "float32", low=(-1.0,) * 4, high=(1.0,) * 4), (5, 2, 2)),
    ],
)
def test_heads_fit_their_action_space(spec: ActionSpec, shape: tuple[int, ...]) -> None:
    head = make_action_head(7, spec)
    policy = head(torch.zeros(5, 7))
    noise = torch.as_tensor(head.draw_noise(make_generator("test"), 5))
    action = policy.sample(noise)
    assert tuple(action.shape) == shape
    assert tuple(policy.mode().shape) == shape
    assert policy.log_prob(action).shape == (5,)
    assert policy.entropy().shape == (5,)


def test_tanh_gaussian_agrees_with_torch() -> None:
    from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

    mean, log_std = torch.tensor([[0.3, -1.0], [2.0, 0.0]]), torch.tensor([[-0.5, 0.2], [0.0, -1.0]])
    ours = TanhGaussian(mean, log_std, (2,))
    theirs = Independent(TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform()), 1)
    action = ours.sample(torch.tensor([[0.1, -0.4], [0.5, 1.0]]))
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action), rtol=1e-4, atol=1e-4)
    torch.manual_seed(0)
    drawn = theirs.sample((200_000,))
    torch.testing.assert_close(ours.entropy(), -theirs.log_prob(drawn).mean(0), rtol=0.02, atol=0.02)
    assert torch.isfinite(ours.log_prob(torch.tensor([[1.0, -1.0], [1.0, -1.0]]))).all()
    torch.testing.assert_close(ours.mode(), mean.tanh())


def test_reparameterised_samples_have_gradients() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    noise = torch.tensor([[0.5, 0.9999, 0.5]])
    choice = Categorical(logits)
    sample = choice.rsample(noise)
    assert sample.tolist() == [[0.0, 1.0, 0.0]] == [[float(k == choice.sample(noise)) for k in range(3)]]
    (slope,) = torch.autograd.grad((sample * torch.tensor([1.0, 0.0, 0.0])).sum(), logits)
    chances = logits.detach().softmax(-1)[0]
    torch.testing.assert_close(slope[0], chances[0] * (torch.tensor([1.0, 0.0, 0.0]) - chances))
    pair = MultiCategorical(torch.zeros(2, 5), (2, 3), (2,))
    numbers = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
    one_hots = pair.rsample(numbers)
    for column, part in enumerate(one_hots.split([2, 3], -1)):
        assert torch.equal(part.argmax(-1), pair.sample(numbers)[:, column])
    mean = torch.zeros(2, 2, 1, requires_grad=True)
    through = Gaussian(mean, torch.zeros(2, 2, 1)).rsample(torch.ones(2, 2))
    assert through.shape == (2, 2)
    assert torch.autograd.grad(through.sum(), mean)[0].sum() == 4


def test_joint_distribution_adds_up_its_parts() -> None:
    logits, mean = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[[0.1], [-0.2]]])
    parts = [
        Categorical(logits),
        Gaussian(mean, torch.zeros(1, 2, 1)),
        MultiCategorical(torch.ones(1, 4), (2, 2), (2,)),
    ]
    joint = Joint(parts, [3, 2, 4], [1, 2, 2])
    noise = torch.tensor([[0.5, 0.9999, 0.5, 1.0, -1.0, 0.9, 0.1, 0.1, 0.9]])
    action = joint.sample(noise)
    torch.testing.assert_close(action, torch.tensor([[1.0, 1.1, -1.2, 0.0, 1.0]]))
    own = [torch.tensor([1]), torch.tensor([[[1.1], [-1.2]]]), torch.tensor([[0, 1]])]
    wanted = torch.stack([part.log_prob(given) for part, given in zip(parts, own, strict=True)]).sum(0)
    torch.testing.assert_close(joint.log_prob(action), wanted)
    torch.testing.assert_close(joint.entropy(), torch.stack([part.entropy() for part in parts]).sum(0))
    assert joint.mode().tolist() == [[2.0, pytest.approx(0.1), pytest.approx(-0.2), 0.0, 0.0]]
    torch.testing.assert_close(joint.rsample(noise)[0, 3:5], torch.tensor([1.1, -1.2]))
    assert joint.rsample(noise)[0, 5:].tolist() == [1, 0, 0, 1]
