"""Dreamer with a planner: its scores by hand, the carry, which envs plan, and what a saved policy holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie.algos.dreamer import Dreamer
from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import make_generator
from reverie.core.types import Clock, Mode, Row
from reverie.models.latent import Decision, Latent
from tests.unit.algos.batches import BOX, DISCRETE, MIXED_ACTION, MULTI_BINARY, MULTI_DISCRETE, column_of, random_rows
from tests.unit.algos.test_dreamer import SMALL, learn, make, make_batch
from tests.unit.algos.test_dreamer_forms import GAUSSIAN

PLANNERS: dict[str, dict[str, Any]] = {
    kind: {
        "kind": kind,
        "horizon": 3,
        "samples": 24,
        "policy_samples": 4,
        "elites": 6,
        "iterations": 2,
        "warm_start": True,
    }
    for kind in ("cem", "mppi")
}
ACTIONS = {"discrete": DISCRETE, "box": BOX, "multi_discrete": MULTI_DISCRETE, "multi_binary": MULTI_BINARY}


def planning(action: Any = BOX, kind: str = "mppi", **settings: Any) -> Dreamer:
    return make(action, planner=PLANNERS[kind], **settings)


def arriving(agent: Dreamer, count: int = 3) -> Row:
    now = column_of(random_rows(agent.specs, count, 1))
    now["previous_action"] = now.pop("action")
    return now


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("model", [SMALL["model"], GAUSSIAN], ids=["categorical", "gaussian"])
@pytest.mark.parametrize("action", ACTIONS)
def test_every_kind_of_action_is_planned(action: str, model: Any, kind: str) -> None:
    agent = planning(ACTIONS[action], kind, model=model)
    now = arriving(agent)
    given, carry, extras = agent.act(now, agent.initial_carry(3), Clock(), make_generator(0), Mode.COLLECT)
    assert given.shape == now["previous_action"].shape
    assert given.dtype == agent.specs.action.dtype
    assert set(carry) == {"deter", "stoch", "plan"}
    assert set(extras) == {"note/deter", "note/stoch", "act_metrics"}
    assert "policy_gain" in extras["act_metrics"].dtype.names
    learn(agent, {key: value for key, value in make_batch(agent).items() if not key.startswith("note/")})


def test_a_plan_is_scored_by_rewards_continuation_and_the_critic() -> None:
    """One sequence step by step: rewards, discounted by the predicted continuation, and the value of the last state."""
    agent = planning(model=GAUSSIAN)
    latent = agent.model.initial(2)
    rng = make_generator(0)
    score = agent.look_ahead(latent, rng).score
    noise = agent.latent_noise(make_generator(0), 3, 48).view(3, 2, 24, 3)
    candidates = torch.as_tensor(make_generator(1).uniform(-1, 1, (3, 2, 24, 2)).astype(np.float32))
    with torch.no_grad():
        found = score(candidates, 0)
        for env, number in ((0, 0), (1, 17)):
            one, weight, total = Latent(*(part[env][None] for part in latent)), 1.0, 0.0
            for step in range(3):
                one, _ = agent.model.rssm.imagine_step(
                    one, candidates[step, env, number][None], noise[step, env, number][None]
                )
                reward, continuation = agent.model.predict(one.features)
                total, weight = total + weight * float(reward), weight * float(continuation)
            total += weight * float(agent.critic.mean(one.features))
            assert float(found[env, number]) == pytest.approx(total, rel=1e-4)


def test_the_policy_proposes_what_it_would_do_in_imagination() -> None:
    agent = planning(DISCRETE)
    latent = agent.model.initial(2)
    candidates = agent.policy_candidates(latent, make_generator(0))
    assert candidates is not None
    assert candidates.shape == (3, 2, 4, 3)
    noise = agent.imagination_noise(make_generator(0), 3, 8)
    start = Latent(*(part.repeat_interleave(4, 0) for part in latent))
    imagined = agent.model.imagine(start, agent.sampling_policy(noise.action), noise.latent)
    assert torch.equal(candidates.flatten(1, 2).argmax(-1), imagined.actions)
    assert agent.make_planner() is not None
    without = make(planner={**PLANNERS["cem"], "policy_samples": 0})
    assert without.policy_candidates(latent, make_generator(0)) is None


def test_planning_raises_the_predicted_return() -> None:
    """Acting by the plan is worth more, by the model itself, than acting by the policy."""
    agent = make(model=GAUSSIAN, action=BOX, planner={**PLANNERS["cem"], "samples": 300, "elites": 30, "iterations": 6})
    latent, planner = agent.model.initial(2), agent.make_planner()
    assert planner is not None
    ahead = agent.look_ahead(latent, make_generator(0))
    start = torch.as_tensor(planner.initial_carry(2)).transpose(0, 1)
    noise = planner.sample_noise(make_generator(1), 2)
    plan = planner.plan(ahead.score, start, noise, Clock(), ahead.policy_candidates)
    assert plan.policy_gain is not None
    assert (plan.gain > plan.policy_gain).all()

    def worth(decide: Any) -> Tensor:
        with torch.no_grad():
            many = Latent(*(part.repeat_interleave(500, 0) for part in latent))
            features = agent.model.imagine(many, decide, agent.latent_noise(make_generator(2), 3, 1000)).features
            rewards, continues, values = agent.outcome(features)
            assert values is not None
            total = values
            for reward, continuation in zip(rewards.flip(0), continues.flip(0), strict=True):
                total = reward + continuation * total
            return total.view(2, 500).mean(1)

    mean = plan.proposal.mean.repeat_interleave(500, 1)
    planned = worth(lambda features, step: Decision(mean[step], encoded=mean[step]))
    sampled = worth(agent.sampling_policy(agent.action_noise(make_generator(3), 3, 1000)))
    assert (planned > sampled).all()


def test_only_envs_that_act_plan_and_a_controller_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = planning()
    now, carry, counts = arriving(agent, 4), agent.initial_carry(4), []
    now["terminated"][2] = True
    look_ahead = agent.look_ahead
    monkeypatch.setattr(
        agent, "look_ahead", lambda latent, rng: counts.append(len(latent.deter)) or look_ahead(latent, rng)
    )
    action, acted, _ = agent.act(now, carry, Clock(), make_generator(0), Mode.COLLECT)
    assert counts == [3]
    assert not action[2].any()
    assert not acted["plan"][2].any()
    _, observed, extras = agent.act(now, carry, Clock(), make_generator(0), Mode.OBSERVE)
    assert counts == [3]
    assert set(extras) == {"note/deter", "note/stoch"}
    np.testing.assert_array_equal(observed["deter"], acted["deter"])
    assert not observed["plan"].any()


def test_plans_start_from_those_of_the_row_before_and_anew_in_first_rows() -> None:
    agent = make(BOX, planner={**PLANNERS["cem"], "iterations": 1, "max_std": 1e-6, "policy_samples": 0})
    now, carry = arriving(agent, 2), agent.initial_carry(2)
    carry["plan"] = make_generator(0).uniform(-1, 1, carry["plan"].shape).astype(np.float32)
    now["is_first"][1] = True
    action, after, _ = agent.act(now, carry, Clock(), make_generator(1), Mode.EVALUATE)
    np.testing.assert_allclose(action, [carry["plan"][0, 1], [0, 0]], atol=1e-4)
    np.testing.assert_allclose(after["plan"][0, :2], carry["plan"][0, 1:], atol=1e-4)


def test_without_a_planner_observing_is_acting() -> None:
    agent = make(BOX)
    assert set(agent.initial_carry(1)) == {"deter", "stoch"}
    now, carry = arriving(agent), agent.initial_carry(3)
    found = [agent.act(now, carry, Clock(), make_generator(0), mode) for mode in (Mode.COLLECT, Mode.OBSERVE)]
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_a_saved_policy_holds_the_critic_if_it_plans() -> None:
    agent, other, plain = planning(), planning(), make(BOX)
    learn(agent, make_batch(agent))
    other.load_policy_state(agent.policy_state())
    now, carry = arriving(agent), agent.initial_carry(3)
    acts = [each.act(now, carry, Clock(), make_generator(0), Mode.EVALUATE)[0] for each in (agent, other)]
    np.testing.assert_array_equal(*acts)
    assert other.has_critic
    assert set(plain.policy_state()) == {"model", "actor"}
    with pytest.raises(RunError, match="hold no critic"):
        other.load_policy_state(plain.policy_state())
    other.load_state(plain.state())  # a checkpoint has one
    plain.load_policy_state(agent.policy_state())


def test_mixed_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match="mixed"):
        planning(MIXED_ACTION)
