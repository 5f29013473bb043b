"""CEM and MPPI against numbers worked by hand, and on problems whose best plan is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from reverie.core import registry
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec
from reverie.core.types import Clock
from reverie.planners.cem import CEM
from reverie.planners.mppi import MPPI
from reverie.planners.planner import Plan, Planner, PlanNoise
from reverie.planners.proposals import Proposal
from tests.unit.algos.batches import BOX, DISCRETE, MULTI_DISCRETE

ONE_VALUE = ActionSpec("continuous", (1,), "float32", low=(-1.0,), high=(1.0,))
TINY = {"horizon": 1, "samples": 4, "policy_samples": 0, "elites": 2, "iterations": 1}


def make(kind: type[Planner], action: Any = BOX, **values: Any) -> Planner:
    return kind(kind.Config.model_validate(values), action)


def plan_once(planner: Planner, drawn: list[float], choice: float = 0.5) -> Plan:
    """One iteration for one env with one action value: it is best at 0.4."""
    noise = PlanNoise(torch.tensor(drawn).view(1, 1, 1, -1, 1), torch.full((1, 2), choice))
    return planner.plan(lambda actions, _: -(actions[0, :, :, 0] - 0.4).square(), torch.zeros(1, 1, 1), noise, Clock())


def plan(planner: Planner, score: Any, num_envs: int, seed: int = 0, clock: Clock = Clock(), **more: Any) -> Plan:  # noqa: B008
    start = torch.as_tensor(planner.initial_carry(num_envs)).transpose(0, 1)
    return planner.plan(score, start, planner.sample_noise(make_generator(seed), num_envs), clock, **more)


def test_one_iteration_of_cem_by_hand() -> None:
    """Candidates -1 (clamped), 0.5, 0.2 and 1 (clamped): the elites are 0.5 and 0.2."""
    found = plan_once(make(CEM, ONE_VALUE, **TINY), [-2.0, 0.5, 0.2, 1.5])
    torch.testing.assert_close(found.values, torch.tensor([[-0.01, -0.04]]))
    assert found.proposal.mean.item() == pytest.approx(0.35)
    assert found.proposal.std.item() == pytest.approx(0.15)
    assert found.action.item() == pytest.approx(0.35)
    assert found.spread.item() == pytest.approx(0.15)
    # Scores -1.96, -0.01, -0.04 and -0.36, whose lower median is -0.36.
    assert found.gain.item() == pytest.approx(-0.025 + 0.36)
    assert found.policy_gain is None


def test_one_iteration_of_mppi_by_hand() -> None:
    """Weights proportional to exp(10 * -0.01) and exp(10 * -0.04): 0.57444 and 0.42556."""
    planner = make(MPPI, ONE_VALUE, **TINY, temperature=10, max_std=1)
    found = plan_once(planner, [-2.0, 0.5, 0.2, 1.5])
    torch.testing.assert_close(found.weights, torch.tensor([[0.57444, 0.42556]]), atol=1e-5, rtol=0)
    assert found.proposal.mean.item() == pytest.approx(0.57444 * 0.5 + 0.42556 * 0.2, abs=1e-5)
    assert found.proposal.std.item() == pytest.approx(0.3 * (0.57444 * 0.42556) ** 0.5, abs=1e-5)
    assert found.action.item() in (pytest.approx(0.5), pytest.approx(0.2))


def test_mppi_draws_its_action_by_the_weights() -> None:
    planner = make(MPPI, ONE_VALUE, **TINY, temperature=10, max_std=1)
    weights = torch.tensor([[0.8, 0.2]]).expand(4000, 2)
    elites = torch.tensor([1.0, -1.0]).view(1, 1, 2, 1).expand(1, 4000, 2, 1)
    noise = torch.as_tensor(make_generator("choice").random((4000, 2), dtype=np.float32))
    chosen = planner.choose(None, elites, weights, noise)  # type: ignore[arg-type]
    assert (chosen > 0).float().mean().item() == pytest.approx(0.8, abs=0.02)


def test_mppi_draws_by_the_weights_also_among_three() -> None:
    """Noise of the wrong sign would draw 0.72, 0.26 and 0.02, and the same among two."""
    planner = make(MPPI, ONE_VALUE)
    wanted, count = torch.tensor([0.7, 0.25, 0.05]), 40_000
    elites = torch.tensor([0.0, 1.0, 2.0]).view(1, 1, 3, 1).expand(1, count, 3, 1)
    noise = torch.from_numpy(make_generator("choice").random((count, 3), dtype=np.float32))
    drawn = planner.choose(Proposal(elites[:, :, 0], elites[:, :, 0]), elites, wanted.expand(count, 3), noise)
    shares = [float((drawn == index).float().mean()) for index in range(3)]
    assert shares == pytest.approx(wanted.tolist(), abs=0.01)


def test_gains_are_against_sequences_drawn_first_not_those_of_the_policy() -> None:
    planner = make(MPPI, ONE_VALUE, **{**TINY, "samples": 6, "policy_samples": 3, "elites": 1})
    noise = PlanNoise(torch.tensor([-0.5, -0.4, -0.3]).view(1, 1, 1, 3, 1) / 2, torch.full((1, 1), 0.5))
    own = torch.tensor([0.7, 0.8, 0.9]).view(1, 1, 3, 1)
    found = planner.plan(lambda actions, _: actions[0, :, :, 0], torch.zeros(1, 1, 1), noise, Clock(), own)
    assert found.gain.item() == pytest.approx(0.9 + 0.4)
    assert found.policy_gain is not None
    assert found.policy_gain.item() == pytest.approx(0.8 + 0.4)


def test_momentum_keeps_a_part_of_the_mean() -> None:
    found = plan_once(make(CEM, ONE_VALUE, **TINY, momentum=0.75), [-2.0, 0.5, 0.2, 1.5])
    assert found.proposal.mean.item() == pytest.approx(0.25 * 0.35)
    assert found.proposal.std.item() == pytest.approx(0.15)  # around the mean of the elites


def test_deviations_stay_within_their_bounds() -> None:
    schedule = {"start": 0.5, "end": 0.2, "from": 0, "to": 100}
    planner = make(CEM, horizon=2, samples=50, elites=5, iterations=8, min_std=schedule, max_std=0.7)
    for steps, bound in ((0, 0.5), (50, 0.35), (200, 0.2)):
        found = plan(planner, lambda actions, _: -actions.square().sum((0, 3)), 3, clock=Clock(env_steps=steps))
        assert found.proposal.std.min().item() == pytest.approx(bound)
    spread = plan(planner, lambda actions, _: actions.square().sum((0, 3)), 3)  # the best are far apart
    assert spread.proposal.std.max().item() <= 0.7


@pytest.mark.parametrize("kind", [CEM, MPPI])
def test_a_quadratic_is_solved_in_every_env(kind: type[Planner]) -> None:
    target = torch.as_tensor(make_generator("targets").uniform(-0.9, 0.9, (4, 3, 1, 2)).astype(np.float32))
    shapes = []

    def score(actions: Tensor, iteration: int) -> Tensor:
        shapes.append((iteration, *actions.shape))
        return -4 * (actions - target).square().sum((0, 3))

    settings = {"samples": 300, "elites": 30, "iterations": 10, "horizon": 4, "policy_samples": 0, "min_std": 0.01}
    found = plan(make(kind, **settings), score, num_envs=3)
    torch.testing.assert_close(found.proposal.mean, target.squeeze(2), atol=0.05, rtol=0)
    torch.testing.assert_close(found.action, target[0, :, 0], atol=0.1, rtol=0)
    assert shapes == [(number, 4, 3, 300, 2) for number in range(10)], "all candidates of all envs, once per iteration"


@pytest.mark.parametrize("action", [DISCRETE, MULTI_DISCRETE])
def test_the_best_discrete_sequence_is_found(action: Any) -> None:
    """Each choice is worth its number at even steps, and minus its number at odd ones."""
    planner = make(CEM, action, horizon=3, samples=200, elites=20, iterations=6)
    worth = torch.cat([torch.arange(count, dtype=torch.float32) for count in action.classes])
    signs = torch.tensor([1.0, -1.0, 1.0])[:, None, None, None]
    found = plan(planner, lambda actions, _: (signs * actions * worth).sum((0, 3)), num_envs=2)
    highest = [count - 1 for count in action.classes]
    assert planner.actions.decode(found.action).reshape(2, -1).tolist() == [highest] * 2
    lowest = planner.actions.decode(planner.actions.best(found.proposal.mean[1]))
    assert lowest.reshape(2, -1).tolist() == [[0] * len(highest)] * 2
    assert found.proposal.mean.min().item() >= 0.01 / max(action.classes) - 1e-6, "no action dies out"
    sums = torch.stack([part.sum(-1) for part in found.proposal.mean.split(list(action.classes), -1)])
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_one_iteration_of_discrete_mppi_by_hand() -> None:
    """The noise makes the candidates 0, 1, 2 and 1. Class 1 is worth 1 and class 2 half of it: the elites are 1, 1."""
    settings = {**TINY, "uniform_mix": 0.1, "momentum": 0.25, "temperature": 2.0}
    planner = make(MPPI, DISCRETE, **settings)
    noise = torch.full((1, 1, 1, 4, 3), 0.1)
    for candidate, chosen in enumerate((0, 1, 2, 1)):
        noise[..., candidate, chosen] = 0.9
    worth = torch.tensor([0.0, 1.0, 0.5])
    score = lambda actions, _: (actions[0] * worth).sum(-1)  # noqa: E731
    drawn = PlanNoise(noise, torch.full((1, 2), 0.5))
    found = planner.plan(score, torch.full((1, 1, 3), 1 / 3), drawn, Clock())
    assert planner.actions.decode(found.action).tolist() == [1]
    assert found.values.tolist() == [[1.0, 1.0]]
    # Refitted: (0, 1, 0), mixed with the uniform distribution; a quarter of the first proposal stays.
    expected = 0.75 * (0.9 * torch.tensor([0.0, 1.0, 0.0]) + 0.1 / 3) + 0.25 / 3
    torch.testing.assert_close(found.proposal.mean.flatten(), expected)


@pytest.mark.parametrize("kind", [CEM, MPPI])
def test_a_warm_start_finds_the_shifted_optimum_sooner(kind: type[Planner]) -> None:
    """With few candidates and one iteration, a plan that starts from the last one is closer to the optimum."""
    target = torch.as_tensor(make_generator("targets").uniform(-0.9, 0.9, (5, 1, 1, 2)).astype(np.float32))
    settings = {"samples": 40, "elites": 5, "horizon": 4, "policy_samples": 0, "max_std": 0.3, "warm_start": True}
    first, later = make(kind, iterations=12, **settings), make(kind, iterations=1, **settings)
    near = lambda start: lambda actions, _: -4 * (actions - target[start : start + 4]).square().sum((0, 3))  # noqa: E731
    plans = plan(first, near(0), 1).proposal.mean.transpose(0, 1).numpy()
    errors = []
    for is_first in (False, True):
        start = torch.as_tensor(later.shifted(plans, np.array([is_first]))).transpose(0, 1)
        found = later.plan(near(1), start, later.sample_noise(make_generator(3), 1), Clock())
        errors.append(float((found.proposal.mean - target[1:].squeeze(2)).square()[:3].sum()))
    assert errors[0] < 0.5 * errors[1]


def test_discrete_candidates_follow_the_probabilities() -> None:
    planner = make(CEM, DISCRETE, uniform_mix=0, horizon=1, samples=20_000, elites=20_000, iterations=1)
    start = torch.tensor([0.7, 0.3, 0.0]).view(1, 1, 3)
    noise = planner.sample_noise(make_generator("probs"), 1)
    found = planner.plan(lambda actions, _: actions.new_zeros(1, actions.shape[2]), start, noise, Clock())
    torch.testing.assert_close(found.proposal.mean.flatten(), torch.tensor([0.7, 0.3, 0.0]), atol=0.01, rtol=0)


def test_envs_do_not_influence_each_other() -> None:
    planner = make(MPPI, policy_samples=0, samples=64, elites=8)
    target = torch.tensor([0.5, -0.5]).view(1, 2, 1, 1)
    noise = planner.sample_noise(make_generator(1), 2)
    both = planner.plan(lambda a, _: -(a - target).square().sum((0, 3)), torch.zeros(3, 2, 2), noise, Clock())
    own = PlanNoise(noise.candidates[:, :, 1:], noise.choice[1:])
    alone = planner.plan(lambda a, _: -(a + 0.5).square().sum((0, 3)), torch.zeros(3, 1, 2), own, Clock())
    torch.testing.assert_close(both.action[1:], alone.action)
    torch.testing.assert_close(both.proposal.mean[:, 1:], alone.proposal.mean)


def test_candidates_of_the_policy_compete() -> None:
    planner = make(MPPI, samples=40, policy_samples=4, elites=4, iterations=3, temperature=1000)
    perfect = torch.full((3, 1, 4, 2), 0.123)
    score = lambda actions, _: -(actions - 0.123).abs().sum((0, 3))  # noqa: E731
    found = plan(planner, score, 1, policy_candidates=perfect)
    assert found.action.tolist() == [[pytest.approx(0.123)] * 2]
    assert found.values.tolist() == [[pytest.approx(0)] * 4]


def test_candidates_without_a_number_are_the_worst() -> None:
    def score(actions: Tensor, iteration: int) -> Tensor:
        returns = actions[0, :, :, 0] - 100  # all are negative
        return torch.where(returns > -100, returns, torch.nan)

    found = plan(make(MPPI, samples=64, elites=8, policy_samples=0), score, 2)
    assert torch.isfinite(found.proposal.mean).all()
    assert (found.action[:, 0] > 0).all()


def test_plans_are_shifted_by_a_step_and_dropped_at_first_rows() -> None:
    planner = make(CEM, horizon=3, warm_start=True)
    plans = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    shifted = planner.shifted(plans, np.array([False, True]))
    assert shifted[0].tolist() == [[2, 3], [4, 5], [0, 0]]
    assert shifted[1].tolist() == [[0, 0]] * 3
    assert not make(CEM, horizon=3, warm_start=False).shifted(plans, np.array([False, False])).any()
    discrete = make(CEM, DISCRETE, horizon=2, warm_start=True)
    np.testing.assert_allclose(discrete.initial_carry(1), np.full((1, 2, 3), 1 / 3), rtol=1e-6)
    known = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    wanted = np.array([[0, 1, 0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(discrete.shifted(known, np.array([False]))[0], wanted, rtol=1e-6)


def test_no_gradient_is_recorded() -> None:
    weight = torch.ones(1, requires_grad=True)
    found = plan(make(MPPI, samples=32, elites=4, policy_samples=0), lambda a, _: (a * weight).sum((0, 3)), 1)
    assert not found.action.requires_grad


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="samples must be above policy_samples"):
        MPPI.Config(samples=24, elites=8)
    with pytest.raises(ValidationError, match="elites must not be above samples"):
        CEM.Config(samples=50)


def test_planners_are_chosen_by_kind() -> None:
    assert registry.kinds("planner") == ["cem", "mppi", "none"]
    assert registry.load("planner", "mppi") is MPPI
