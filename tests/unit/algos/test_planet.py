"""PlaNet: its objective by slow forms, where gradients go, planning for the envs that act, exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie.algos.planet import PlaNet
from reverie.core.contracts import Decodes, WorldModel
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Clock, Mode, Row
from reverie.functional.gaussian import kl_divergence
from reverie.models.latent import Latent
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    MIXED_ACTION,
    MULTI_BINARY,
    MULTI_DISCRETE,
    OBSERVATIONS,
    VECTOR,
    column_of,
    random_rows,
    with_other,
)  # fmt: skip

CODEC = {"depth": 2, "multipliers": (1, 2), "layers": 1, "units": 6}
SMALL: dict[str, Any] = {
    "batch_size": 2, "batch_length": 5, "learning_rate": 1e-2, "free_nats": 0.01,
    "model": {"kind": "rssm", "encoder": CODEC, "decoder": CODEC,
              "rssm": {"latents": "gaussian", "deter": 8, "hidden": 6, "stoch": 3, "blocks": 2, "prior_layers": 1},
              "reward": {"units": 6, "output": "normal"}, "continuation": {"units": 6}},
    "planner": {"kind": "cem", "horizon": 3, "samples": 16, "elites": 4, "iterations": 2},
}  # fmt: skip
ACTIONS = {"discrete": DISCRETE, "box": BOX, "multi_discrete": MULTI_DISCRETE, "multi_binary": MULTI_BINARY}


def make(action: ActionSpec = BOX, observations: Any = VECTOR, **settings: Any) -> PlaNet:
    config = PlaNet.Config.model_validate({**SMALL, **settings})
    agent = PlaNet(config, Specs(observations, action), make_generator(0, "weights"))
    rng = make_generator(0, "reward")
    for parameter in agent.model.reward.output.parameters():  # they start at 0, which would hide errors
        parameter.data += 0.3 * torch.as_tensor(rng.standard_normal(parameter.shape, dtype=np.float32))
    return agent


def make_batch(agent: PlaNet, seed: int = 0) -> Row:
    """Rows (2, 6): one episode is truncated, another ends."""
    rows = random_rows(agent.specs, 2, 6, seed)
    rows["is_first"][0, 3] = rows["truncated"][0, 2] = True
    rows["terminated"][1, 4] = rows["is_first"][1, 5] = True
    return rows


def arriving(agent: PlaNet, count: int) -> Row:
    now = column_of(random_rows(agent.specs, count, 1))
    now["previous_action"] = now.pop("action")
    return now


def learn(agent: PlaNet, batch: Row, hook: str = "update") -> dict[str, float]:
    update = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise"))
    return {key: float(value) for key, value in update.metrics.items()}


def weights(agent: PlaNet) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in agent.model.parameters()])


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_every_kind_of_observation_and_action(observations: str, action: str) -> None:
    agent = make(ACTIONS[action], OBSERVATIONS[observations], overshooting_steps=3)
    before = weights(agent)
    metrics = learn(agent, make_batch(agent))
    assert all(np.isfinite(value) for value in metrics.values())
    assert not torch.equal(before, weights(agent))
    now = arriving(agent, 3)
    given, carry, extras = agent.act(now, agent.initial_carry(3), Clock(), make_generator(0), Mode.COLLECT)
    assert given.shape == now["previous_action"].shape
    assert given.dtype == agent.specs.action.dtype
    assert set(carry) == {"deter", "stoch", "plan"}
    assert extras["act_metrics"].shape == (3,)
    assert isinstance(agent, WorldModel)
    assert isinstance(agent, Decodes)


def test_the_loss_by_a_slow_form() -> None:
    """Every term for every row, in plain Python, from the posteriors of the update."""
    agent = make(loss_weights={"reconstruction": 0.25, "reward": 3.0, "continuation": 2.0, "divergence": 0.5})
    rows = make_batch(agent)
    batch = agent.make_sequences(rows, make_generator(1))
    loss = agent.loss(batch)
    post, total = agent.model.observe(agent.model.initial(2), batch.rows, batch.noise), torch.zeros(())
    for env in range(2):
        for time in range(5):
            latent = Latent(*(x[env, time][None] for x in post.latent))
            features = latent.features
            decoded = agent.model.decoder._outputs(latent)["obs"][0]
            observed = torch.as_tensor(rows["obs"][env, time + 1])
            squared = (decoded - observed.sign() * observed.abs().log1p()).square().sum()
            reward = (agent.model.reward(features).mean()[0] - float(rows["reward"][env, time + 1])) ** 2
            goes_on = 1.0 - float(rows["terminated"][env, time + 1])
            probability = agent.model.continuation(features).sigmoid()[0]
            surprise = -(goes_on * probability.log() + (1 - goes_on) * (1 - probability).log())
            divergence = kl_divergence(post.params[env, time], agent.model.rssm.prior(latent.deter)[0])
            total = total + 0.25 * squared + 3 * 0.5 * reward + 2 * surprise + 0.5 * divergence.clamp(min=0.01)
    torch.testing.assert_close(loss.total, total / 10)


def slow_overshooting(agent: PlaNet, rows: dict[str, Tensor], post: Any, noise: Tensor) -> Tensor:
    """From every row and every distance on its own, by the fast imagination."""
    steps, (count, length) = len(noise), rows["is_first"].shape
    total = torch.zeros(count, length)
    for env in range(count):
        for start in range(length):
            latent = Latent(*(x[env, start][None] for x in post.latent))
            for distance in range(1, steps + 1):
                time = start + distance
                if time >= length or bool(rows["is_first"][env, time]):
                    break
                action = agent.model.action_input(rows["previous_action"][env, time][None])
                latent, params = agent.model.rssm.imagine_step(latent, action, noise[distance - 1, env, time][None])
                if distance > 1:
                    divergence = kl_divergence(post.params[env, time].detach(), params[0])
                    total[env, time] += divergence.clamp(min=agent.config.free_nats) / steps
    return total


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_latent_overshooting_by_a_slow_form(steps: int) -> None:
    agent = make(overshooting_steps=steps)
    batch = agent.make_sequences(make_batch(agent), make_generator(1))
    assert batch.overshooting_noise is not None
    post = agent.model.observe(agent.model.initial(2), batch.rows, batch.noise)
    found = agent.overshooting_loss(post, batch.rows, batch.overshooting_noise)
    expected = slow_overshooting(agent, batch.rows, post, batch.overshooting_noise)
    torch.testing.assert_close(found, expected)
    assert (found[0, :2] == 0).all()  # nothing reaches them
    assert (found[0, 2:4] == 0).all()  # a first row, and the one after it
    parameters = list(agent.model.rssm.parameters())
    fast, slow = (
        torch.autograd.grad(x.sum(), parameters, retain_graph=True, allow_unused=True) for x in (found, expected)
    )
    assert sum(gradient is not None for gradient in slow) > 10
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_overshooting_does_not_move_its_targets() -> None:
    agent = make(overshooting_steps=3)
    batch = agent.make_sequences(make_batch(agent), make_generator(1))
    post = agent.model.observe(agent.model.initial(2), batch.rows, batch.noise)
    target = post.params.requires_grad_()
    fixed = post._replace(params=target, latent=post.latent.detach())
    assert batch.overshooting_noise is not None
    loss = agent.overshooting_loss(fixed, batch.rows, batch.overshooting_noise).sum()
    (gradient,) = torch.autograd.grad(loss, [target], allow_unused=True)
    assert gradient is None
    assert loss.requires_grad


def test_one_step_of_overshooting_is_none() -> None:
    plain, other = make(), make(overshooting_steps=1, loss_weights={"overshooting": 100.0})
    learn(plain, make_batch(plain))
    assert "loss_overshooting" not in learn(other, make_batch(other))
    assert torch.equal(weights(plain), weights(other))
    more = make(overshooting_steps=2)
    assert "loss_overshooting" in learn(more, make_batch(more))


def test_free_nats_have_no_gradient() -> None:
    agent = make(free_nats=1e6, loss_weights={"reconstruction": 0, "reward": 0, "continuation": 0})
    before = weights(agent)
    assert learn(agent, make_batch(agent))["loss_divergence"] == 1e6
    assert torch.equal(before, weights(agent))


def test_both_hooks_are_the_same_update() -> None:
    first, second = make(), make()
    assert learn(first, make_batch(first)) == learn(second, make_batch(second), "update_world_model")
    assert torch.equal(weights(first), weights(second))


def test_actions_of_final_rows_change_nothing() -> None:
    first, second, third = make(overshooting_steps=3), make(overshooting_steps=3), make(overshooting_steps=3)
    batch = make_batch(first)
    final = batch["terminated"] | batch["truncated"]
    other = {**batch, "action": np.where(final[..., None], -batch["action"], batch["action"])}
    learn(first, batch)
    learn(second, other)
    assert torch.equal(weights(first), weights(second))
    learn(third, with_other(batch, ~final))
    assert not torch.equal(weights(first), weights(third))


def test_rows_that_are_not_valid_change_nothing() -> None:
    agents = []
    for seed in (1, 2):
        agent = make(overshooting_steps=3)
        valid = np.ones((2, 6), bool)
        valid[1, 2:] = False
        batch = make_batch(agent) | {"valid": valid}
        learn(agent, with_other(batch, ~valid, seed))
        agents.append(agent)
    assert torch.equal(*map(weights, agents))


def test_a_truncated_episode_goes_on_and_a_terminated_one_ends() -> None:
    """The target of the continuation head is 0 in terminated rows alone."""
    agent = make(loss_weights={"reconstruction": 0, "reward": 0, "divergence": 0})
    rows = random_rows(agent.specs, 2, 6)
    rows["truncated"][0, 1:] = rows["is_first"][0] = True
    rows["terminated"][1, 1:] = rows["is_first"][1] = True
    for seed in range(60):
        agent.update(rows, Clock(), make_generator(seed))
    seen = {key: value[:, 1:] for key, value in rows.items()} | {"previous_action": rows["action"][:, :-1]}
    latents = agent.observe(seen, make_generator(0)).latents
    goes_on = agent.predict(latents)["continuation"]
    assert goes_on[0].min() > 0.7
    assert goes_on[1].max() < 0.3


def test_a_plan_is_scored_by_rewards_until_the_episode_ends() -> None:
    """One sequence of each env, step by step, with the noise that the planner draws for it."""
    agent, latent = make(), make().model.initial(2)
    score = agent.look_ahead(latent, make_generator(0)).score
    noise = agent.latent_noise(make_generator(0), 3, 32).view(3, 2, 16, 3)
    candidates = torch.as_tensor(make_generator(1).uniform(-1, 1, (3, 2, 16, 2)).astype(np.float32))
    with torch.no_grad():
        found = score(candidates, 0)
        for env, number in ((0, 0), (1, 11)):
            one, goes_on, total = Latent(*(part[env][None] for part in latent)), 1.0, 0.0
            for step in range(3):
                action, own_noise = candidates[step, env, number][None], noise[step, env, number][None]
                one, _ = agent.model.rssm.imagine_step(one, action, own_noise)
                reward, continuation = agent.model.predict(one.features)
                total, goes_on = total + goes_on * float(reward), goes_on * float(continuation)
            assert float(found[env, number]) == pytest.approx(total, rel=1e-4)


def test_plans_maximise_the_predicted_rewards() -> None:
    """By imagining step after step, the planned sequence earns more than a random one."""
    agent = make(planner={**SMALL["planner"], "samples": 200, "elites": 20, "iterations": 5})
    now, carry = arriving(agent, 2), agent.initial_carry(2)
    _, _, extras = agent.act(now, carry, Clock(), make_generator(0), Mode.EVALUATE)
    metrics = extras["act_metrics"]
    assert (metrics["plan_gain"] > 0).all()
    latent = agent.observe_arriving(now, carry, make_generator(0))
    plan = agent._plan(latent, Clock(), make_generator(1))
    sequences = plan.proposal.mean.unsqueeze(2)  # (H, N, 1, W)
    random = torch.as_tensor(make_generator(2).uniform(-1, 1, (3, 2, 1, 2)).astype(np.float32))
    planned, other = (
        np.mean([predicted_return(agent, latent, actions, seed) for seed in range(30)], 0)
        for actions in (sequences, random)
    )
    assert (planned > other).all()


def predicted_return(agent: PlaNet, latent: Latent, actions: Tensor, seed: int) -> Any:
    """The return (N,) of one sequence (H, N, 1, W) per env, by imagining step after step."""
    rng = make_generator(seed)
    total, alive = np.zeros(2), np.ones(2)
    for step in range(3):
        noise = agent.latent_noise(rng, 2)
        with torch.no_grad():
            latent, _ = agent.model.rssm.imagine_step(latent, actions[step, :, 0], noise)
        found = agent.predict(agent.to_numpy(latent))
        total += alive * found["reward"]
        alive = alive * found["continuation"]
    return total


def test_only_envs_that_act_are_planned_for() -> None:
    """An episode that has ended and an env that rests take part in no plan, and do not change those of others."""
    agent = make(planner={**SMALL["planner"], "warm_start": True})
    now, rng = arriving(agent, 4), make_generator(3)
    now["truncated"][1] = True
    now["valid"] = np.array([True, True, False, True])
    carry = agent.initial_carry(4)
    carry["plan"] = rng.uniform(-1, 1, carry["plan"].shape).astype(np.float32)
    counts: list[int] = []
    look_ahead = agent.look_ahead

    def note(latent: Latent, rng: np.random.Generator) -> Any:
        counts.append(len(latent.deter))
        return look_ahead(latent, rng)

    agent.look_ahead = note  # type: ignore[method-assign]
    action, after, extras = agent.act(now, carry, Clock(), make_generator(5), Mode.EVALUATE)
    assert counts == [2]
    assert extras["act_metrics"].shape == (2,)
    assert not action[1:3].any()
    assert action[[0, 3]].any(1).all()
    np.testing.assert_array_equal(after["plan"][1:3], carry["plan"][1:3])
    assert (after["plan"][[0, 3]] != carry["plan"][[0, 3]]).any()
    now["terminated"][:] = True
    _, _, nothing = agent.act(now, carry, Clock(), make_generator(5), Mode.EVALUATE)
    assert counts == [2]
    assert nothing == {}


def test_observing_skips_planning_and_keeps_the_latents() -> None:
    agent = make(planner={**SMALL["planner"], "warm_start": True})
    now, carry = arriving(agent, 3), agent.initial_carry(3)
    agent.look_ahead = None  # type: ignore[assignment]
    _, observed, extras = agent.act(now, carry, Clock(), make_generator(0), Mode.OBSERVE)
    assert extras == {}
    other = make(planner={**SMALL["planner"], "warm_start": True})
    _, acted, _ = other.act(now, carry, Clock(), make_generator(0), Mode.EVALUATE)
    np.testing.assert_array_equal(observed["deter"], acted["deter"])
    np.testing.assert_array_equal(observed["stoch"], acted["stoch"])
    np.testing.assert_array_equal(observed["plan"], agent.initial_carry(3)["plan"])


def test_exploration_is_for_collecting_alone() -> None:
    quiet, noisy = make(exploration_noise=0.0), make(exploration_noise=0.5)
    now, carry = arriving(quiet, 300), quiet.initial_carry(300)
    acts = {
        (name, mode): agent.act(now, carry, Clock(), make_generator(0), mode)[0]
        for name, agent in (("quiet", quiet), ("noisy", noisy))
        for mode in (Mode.COLLECT, Mode.EVALUATE)
    }
    np.testing.assert_array_equal(acts["quiet", Mode.COLLECT], acts["quiet", Mode.EVALUATE])
    np.testing.assert_array_equal(acts["noisy", Mode.EVALUATE], acts["quiet", Mode.EVALUATE])
    difference = acts["noisy", Mode.COLLECT] - acts["quiet", Mode.COLLECT]
    assert np.abs(acts["noisy", Mode.COLLECT]).max() <= 1
    middle = np.abs(acts["quiet", Mode.COLLECT]) < 0.2
    assert difference[middle].std() == pytest.approx(0.5, rel=0.25)


@pytest.mark.parametrize("action", [DISCRETE, MULTI_DISCRETE])
def test_some_discrete_actions_are_random(action: ActionSpec) -> None:
    quiet, noisy = make(action, exploration_noise=0.0), make(action, exploration_noise=0.5)
    now, carry = arriving(quiet, 300), quiet.initial_carry(300)
    one, other = (agent.act(now, carry, Clock(), make_generator(0), Mode.COLLECT)[0] for agent in (quiet, noisy))
    differs = (one != other).reshape(300, -1).any(1).mean()
    chance = 1 - 1 / np.prod(action.classes)
    assert differs == pytest.approx(0.5 * chance, abs=0.1)


def test_what_cannot_act_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot act without a planner"):
        make(planner={"kind": "none"})
    with pytest.raises(ConfigError, match="mixed"):
        make(MIXED_ACTION)


def test_dreams_follow_plans_and_go_on_beyond_their_horizon() -> None:
    agent = make(DISCRETE)
    rows = random_rows(agent.specs, 2, 2)
    rows["is_first"][:, 0] = True
    rows["previous_action"] = rows["action"]
    found = agent.inspect(rows, Clock(), make_generator(0), decode=True, dream_steps=5)
    assert {key: value.shape[:2] for key, value in found.dream.items()} == dict.fromkeys(found.dream, (2, 5))
    assert {"action", "reward", "continuation", "latent/deter", "latent/stoch", "obs"} == set(found.dream)
    assert found.value is not None
    assert found.value.shape == (2, 2)
