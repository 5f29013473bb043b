"""Planning over a world model: returns by hand, and a plan over Dreamer's model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie.core.rng import make_generator
from reverie.core.types import Clock
from reverie.models.latent import Decision, Latent
from reverie.planners.model_returns import Outcome, predicted_return, repeat_each, score_by
from reverie.planners.mppi import MPPI
from tests.unit.algos.batches import BOX
from tests.unit.algos.test_dreamer import make


def test_returns_by_hand() -> None:
    rewards, continues = torch.tensor([[1.0, 0.0], [2.0, 4.0]]), torch.tensor([[0.5, 1.0], [0.25, 0.0]])
    assert predicted_return(rewards, continues, torch.tensor([8.0, 8.0])).tolist() == [1 + 0.5 * (2 + 0.25 * 8), 4]
    assert predicted_return(rewards, continues).tolist() == [1 + 0.5 * 2, 4]


def test_scores_belong_to_their_candidates() -> None:
    def imagine(actions: Tensor, iteration: int) -> Outcome:
        assert actions.shape == (2, 6, 1)
        return Outcome(actions.squeeze(-1) + iteration, torch.ones(2, 6))

    candidates = torch.arange(12.0).view(2, 2, 3, 1)
    assert score_by(imagine)(candidates, 0).tolist() == [[6, 8, 10], [12, 14, 16]]
    assert score_by(imagine)(candidates, 1).tolist() == [[8, 10, 12], [14, 16, 18]]


def test_latents_are_repeated_for_adjoining_candidates() -> None:
    latent = repeat_each(Latent(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])), 2)
    assert isinstance(latent, Latent)
    assert latent.deter.flatten().tolist() == [1, 1, 2, 2]
    assert latent.stoch.flatten().tolist() == [3, 3, 4, 4]


def test_a_plan_over_dreamers_model_is_better_than_its_first_candidates() -> None:
    """The model is that of the RSSM, and its critic values what comes after the horizon."""
    agent = make(action=BOX)
    for parameter in agent.model.reward.output.parameters():  # they are 0 before training
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    planner = MPPI(MPPI.Config(samples=64, policy_samples=0, elites=8), BOX)
    start = repeat_each(agent.model.initial(2), 64)
    noise = agent.latent_noise(make_generator("dynamics"), 3, 128)
    best: list[Tensor] = []

    def imagine(actions: Tensor, iteration: int) -> Outcome:
        imagined = agent.model.imagine(start, lambda features, step: Decision(actions[step]), noise)
        reward, continuation = agent.model.predict(imagined.features[1:])
        return Outcome(reward, continuation, agent.critic.mean(imagined.features[-1]))

    def score(candidates: Tensor, iteration: int) -> Tensor:
        values = score_by(imagine)(candidates, iteration)
        best.append(values.amax(1))
        return values

    plan = planner.plan(score, torch.zeros(3, 2, 2), planner.sample_noise(make_generator("plan"), 2), Clock())
    assert plan.action.shape == (2, 2)
    assert (best[-1] > best[0]).all()
    assert plan.values[:, 0].tolist() == pytest.approx(best[-1].tolist())
