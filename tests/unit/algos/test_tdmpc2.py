"""TD-MPC2's losses against a slow form written from the formulas, its gradients' paths, and its plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.algos.tdmpc2 import TDMPC2
from reverie.algos.tdmpc_batch import make_batch
from reverie.backend import DEFAULT
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import ACT_METRICS, Clock, Mode, Row
from reverie.nets.optim import gradient_of
from tests.sessions import assert_same_state
from tests.unit.algos.batches import BOX, IMAGE, VECTOR, column_of, random_rows, with_other

SPECS = Specs(VECTOR, BOX, max_episode_steps=500)
HORIZON = 3
TINY: dict[str, Any] = {
    "model": {"kind": "latent_mlp", "latent": 16, "units": 12, "encoder_units": 10, "bins": 21},
    "planner": {"kind": "mppi", "samples": 20, "policy_samples": 4, "elites": 5, "iterations": 2},
    "num_critics": 4, "dropout": 0.1,
}  # fmt: skip
PARTS = ("encoder", "model", "critics")


def make(specs: Specs = SPECS, **values: Any) -> TDMPC2:
    """An agent whose heads are not zero, so that every term of its losses counts."""
    agent = TDMPC2(TDMPC2.Config.model_validate({**TINY, **values}), specs, make_generator("weights"))
    rng = make_generator("disturb")
    with torch.no_grad():
        for module in (agent.model, agent.policy, agent.critics, agent.target_critics):
            for weight in module.parameters():
                weight.add_(0.2 * torch.from_numpy(rng.standard_normal(weight.shape, dtype=np.float32)))
    return agent


def make_rows(specs: Specs = SPECS, count: int = 6, seed: int = 0) -> Row:
    """Sequences of four rows. One episode terminates at the end, one is truncated after the first transition."""
    rows = random_rows(specs, count, HORIZON + 1, seed)
    rows["terminated"][1, 3] = rows["truncated"][2, 1] = True
    valid = np.ones(rows["is_first"].shape, bool)
    valid[2, 2:] = False
    return rows | {"valid": valid}


# -------------------------------------------------------------------- the slow form


def two_hot_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy with a target between two bins, one number at a time."""
    low, high, count = -10.0, 10.0, logits.shape[-1]
    width = (high - low) / (count - 1)
    position = (torch.sign(target) * torch.log(1 + target.abs()) - low) / width
    below = int(position.clamp(0, count - 1 - 1e-6))
    fraction = float(position) - below
    log_probs = logits.log_softmax(-1)
    return -((1 - fraction) * log_probs[below] + fraction * log_probs[below + 1])


def decode(logits: Tensor) -> Tensor:
    mean = logits.softmax(-1) @ torch.linspace(-10, 10, logits.shape[-1])
    return torch.sign(mean) * (mean.abs().exp() - 1)


def is_counted(sequence: int, step: int) -> bool:
    """Only the second transition of sequence 2 and what follows it do not count."""
    return sequence != 2 or step < 1


def slow_losses(agent: TDMPC2, rows: Row, objective: Any) -> dict[str, Tensor]:
    """The losses of world model, Q-functions and policy, sequence by sequence and step by step."""
    noise, gamma, decay = objective.noise, 0.99, 0.5
    count = len(rows["reward"])
    obs, actions = torch.from_numpy(rows["obs"]), torch.from_numpy(rows["action"])
    hidden = torch.ones(4 * HORIZON * count * 12)  # dropout's mask over members, rows and units
    hidden[noise.value_dropped] = 0
    sums: dict[str, list[list[Tensor]]] = {
        name: [[] for _ in range(HORIZON)] for name in ("consistency", "reward", "value", "termination")
    }
    for b in range(count):
        latent = agent.model.encode({"obs": obs[b, :1]})
        for t in range(HORIZON):
            if not is_counted(b, t):
                break
            reward, terminated = float(rows["reward"][b, t + 1]), float(rows["terminated"][b, t + 1])
            with torch.no_grad():
                target = agent.model.encode({"obs": obs[b, t + 1][None]})
                action = agent.policy(target).rsample(noise.target_actions[t, b][None])
                pair = torch.cat([target, action], 1)
                both = [decode(agent.target_critics(pair)[member, 0]) for member in noise.target_pair]
                td_target = reward + gamma * (1 - terminated) * min(both)
            pair = torch.cat([latent, actions[b, t][None]], 1)
            sums["reward"][t].append(two_hot_loss(agent.model.reward_head(pair)[0], torch.tensor(reward)))
            masks = hidden.view(4, HORIZON, count, 12)[:, t, b]
            logits = torch.stack([masked_q(agent, pair, member, masks[member]) for member in range(4)])
            sums["value"][t].append(torch.stack([two_hot_loss(each, td_target) for each in logits]).mean())
            latent = agent.model.next(latent, actions[b, t][None])
            sums["consistency"][t].append(((latent - target) ** 2).mean())
            if agent.model.termination_head is not None:
                logit = agent.model.termination_head(latent)[0, 0]
                sums["termination"][t].append(F.binary_cross_entropy_with_logits(logit, torch.tensor(terminated)))
    losses = {
        name: sum(decay**t * torch.stack(steps[t]).mean() for t in range(HORIZON)) / HORIZON
        for name, steps in sums.items() if name != "termination"
    }  # fmt: skip
    if agent.model.termination_head is not None:
        losses["termination"] = torch.stack([x for steps in sums["termination"] for x in steps]).mean()
    return losses


def masked_q(agent: TDMPC2, pair: Tensor, member: int, mask: Tensor) -> Tensor:
    """The logits (K) of one Q-function whose first layer loses the values where the mask is 0."""
    critics = agent.critics
    x = (pair[0] @ critics.first.weight[member] + critics.first.bias[member, 0]) * mask
    for index, layer in enumerate((critics.second, critics.output)):
        normed = F.layer_norm(x, x.shape) * critics.scales[index][member, 0] + critics.shifts[index][member, 0]
        x = F.mish(normed) @ layer.weight[member] + layer.bias[member, 0]
    return x


@pytest.mark.parametrize("episodic", [False, True])
def test_the_joint_objective_is_that_of_the_slow_form(episodic: bool) -> None:
    agent, rows = make(episodic=episodic), make_rows()
    objective = agent.make_objective(rows, make_generator("update"))
    found, expected = agent.model_loss(objective), slow_losses(agent, rows, objective)
    for name, loss in expected.items():
        assert float(found.metrics[f"loss_{name}"].detach()) == pytest.approx(float(loss.detach()), rel=1e-4)
    total = sum({"consistency": 20, "reward": 0.1, "value": 0.1, "termination": 1}[k] * v for k, v in expected.items())
    weights = [*agent.model.parameters(), *agent.critics.parameters()]
    for own, wanted in zip(torch.autograd.grad(found.total, weights), torch.autograd.grad(total, weights), strict=True):
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=1e-6)


def test_the_policy_objective_is_that_of_the_slow_form(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, rows = make(dropout=0.0), make_rows()
    objective = agent.make_objective(rows, make_generator("update"))
    with torch.no_grad():
        latents = agent.unroll(objective.batch)
    scale = 1.0
    steps: list[list[Tensor]] = [[] for _ in range(HORIZON + 1)]
    first = []
    for t in range(HORIZON + 1):
        for b in range(len(rows["reward"])):
            noise, latent = objective.noise.policy_actions[t, b], latents[t, b]
            mean, spread = agent.policy.layers(latent[None])[0].chunk(2)
            log_std = -10 + 6 * (torch.tanh(spread) + 1)
            pair = torch.cat([latent, torch.tanh(mean + log_std.exp() * noise)])[None]
            q = sum(decode(agent.critics(pair)[member, 0]) for member in objective.noise.policy_pair) / 2
            density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
            if t == 0:
                first.append(float(q.detach()))
            if t == 0 or is_counted(b, t - 1):
                steps[t].append(torch.stack([q, -2 * density.sum()]))
    low, high = np.quantile(first, [0.05, 0.95])
    scale += 0.01 * (max(1, high - low) - 1)
    means = [torch.stack(each).mean(0) for each in steps]
    expected = sum(0.5**t * -(q / scale + 1e-4 * entropy) for t, (q, entropy) in enumerate(means)) / (HORIZON + 1)
    weights = list(agent.policy.parameters())
    scaled: list[Tensor] = []
    update_scale = agent.return_scale.update
    monkeypatch.setattr(agent.return_scale, "update", lambda values: [scaled.append(values), update_scale(values)])
    found = agent.policy_loss(latents, objective.batch, objective.noise)
    np.testing.assert_allclose(scaled[0].detach(), first, rtol=1e-4)  # the scale is that of the first step
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    assert float(found.metrics["return_scale"]) == pytest.approx(scale)
    for own, wanted in zip(
        torch.autograd.grad(found.total, weights), torch.autograd.grad(expected, weights), strict=True
    ):
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=1e-6)


# -------------------------------------------------------------------- what trains what


def weights_of(agent: TDMPC2) -> dict[str, Tensor]:
    found = {name: optimizer.flat.data.clone() for name, optimizer in agent.optimizers.items()}
    return found | {"policy": agent.policy_optimizer.flat.data.clone(), "targets": agent.target_flat.clone()}


@pytest.mark.parametrize(
    ("hook", "trained"),
    [
        ("update", {*PARTS, "policy", "targets"}), ("update_world_model", {"encoder", "model"}),
        ("update_controller", {"critics", "policy", "targets"}),
    ],
)  # fmt: skip
def test_each_hook_trains_its_networks(hook: str, trained: set[str]) -> None:
    agent = make()
    before = weights_of(agent)
    getattr(agent, hook)(make_rows(), Clock(), make_generator("update"))
    after = weights_of(agent)
    assert {name for name in before if not torch.equal(before[name], after[name])} == trained


def test_targets_and_policy_give_the_model_no_gradient() -> None:
    """Without its own losses, the joint objective would move nothing but the Q-functions."""
    agent = make(loss_weights={"consistency": 0, "reward": 0, "value": 1})
    objective = agent.make_objective(make_rows(), make_generator("update"))._replace(trains_model=False)
    loss = agent.model_loss(objective).total
    others = [*agent.model.parameters(), *agent.policy.parameters()]
    assert torch.autograd.grad(loss, others, allow_unused=True, retain_graph=True) == (None,) * len(others)
    with torch.no_grad():
        latents = agent.unroll(objective.batch)
    policy_loss = agent.policy_loss(latents, objective.batch, objective.noise).total
    others = [*agent.model.parameters(), *agent.critics.parameters()]
    assert torch.autograd.grad(policy_loss, others, allow_unused=True) == (None,) * len(others)
    assert all(weight.requires_grad for weight in agent.critics.parameters())


def test_rows_after_the_end_of_an_episode_change_nothing() -> None:
    one, other = make(), make()
    rows = make_rows()
    changed = with_other(rows, ~rows["valid"])
    for agent, batch in ((one, rows), (other, changed)):
        agent.update(batch, Clock(), make_generator("update"))
    assert_same_state(one.state(), other.state())


def test_the_encoder_learns_at_its_own_rate() -> None:
    """Adam's first step is the learning rate times the sign of the gradient, nearly."""
    agent = make(learning_rate=1e-3)
    before = weights_of(agent)
    agent.update_world_model(make_rows(), Clock(), make_generator("update"))
    after = weights_of(agent)
    for name, rate in (("encoder", 3e-4), ("model", 1e-3)):
        moved = (after[name] - before[name]).abs()
        assert float(moved.max()) == pytest.approx(rate, rel=1e-2)


def test_target_critics_follow_at_their_rate() -> None:
    agent = make(target_rate=0.25)
    before = agent.target_flat.clone()
    agent.update(make_rows(), Clock(), make_generator("update"))
    expected = before + 0.25 * (agent.optimizers["critics"].flat.data - before)
    torch.testing.assert_close(agent.target_flat, expected)


def test_model_and_critics_are_clipped_together() -> None:
    agent = make(max_grad_norm=1e-3)
    agent.update(make_rows(), Clock(), make_generator("update"))
    gradients = [gradient_of(p) for part in PARTS for p in agent.optimizers[part].parameters]
    assert float(torch.cat([g.flatten() for g in gradients]).norm()) == pytest.approx(1e-3, rel=1e-2)


# -------------------------------------------------------------------- acting


def test_scores_are_predicted_returns_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make(dropout=0.0)
    planner = agent.planner
    assert planner is not None
    latent = torch.from_numpy(make_generator("latent").random((3, 16), dtype=np.float32))
    candidates = torch.from_numpy(make_generator("actions").uniform(-1, 1, (3, 3, 20, 2)).astype(np.float32))
    with torch.inference_mode():
        drawn = agent.score_noise(make_generator("noise"), 3)
        found = agent.score(latent, candidates, drawn, 1)
        monkeypatch.setattr("reverie.algos.tdmpc_agent.BLOCK_ROWS", 20)
        torch.testing.assert_close(agent.score(latent, candidates, drawn, 1), found)
        for env, candidate in ((0, 0), (2, 13)):
            z, total = latent[env : env + 1], torch.zeros(1)
            for t in range(3):
                action = candidates[t, env, candidate][None]
                total = total + 0.99**t * agent.model.step(z, action)[1]
                z = agent.model.next(z, action)
            last = agent.policy(z).rsample(drawn.final[1, env, candidate][None])
            q = agent.critics(torch.cat([z, last], 1))
            total = total + 0.99**3 * sum(decode(q[member, 0]) for member in drawn.pairs[1]) / 2
            assert float(found[env, candidate]) == pytest.approx(float(total), rel=1e-4)


def test_plans_expect_nothing_after_termination() -> None:
    agent = make(episodic=True)
    head = agent.model.termination_head
    assert head is not None
    latent, actions = torch.full((1, 16), 0.125), torch.zeros(3, 20, 2)
    with torch.inference_mode():
        noise = torch.zeros(20, 2)
        head.output.weight.zero_()
        head.output.bias.fill_(-1.0)
        alive = agent.imagine_returns(latent, actions, noise, (0, 1))
        head.output.bias.fill_(1.0)
        ended = agent.imagine_returns(latent, actions, noise, (0, 1))
    assert alive.continues.unique().tolist() == [pytest.approx(0.99)]
    assert ended.continues.unique().tolist() == [0]
    torch.testing.assert_close(alive.rewards, ended.rewards)


def act(agent: TDMPC2, now: Row, mode: Mode, seed: int = 0, carry: Any = None) -> Any:
    carry = agent.initial_carry(len(now["is_first"])) if carry is None else carry
    return agent.act(now, carry, Clock(), make_generator(seed), mode)


def test_collecting_adds_the_plans_noise_and_evaluating_does_not() -> None:
    agent, now = make(), column_of(random_rows(SPECS, 4, 1))
    collected, carry, extras = act(agent, now, Mode.COLLECT)
    evaluated, _, _ = act(agent, now, Mode.EVALUATE)
    assert collected.shape == (4, 2)
    assert np.abs(collected).max() <= 1
    assert not np.allclose(collected, evaluated)
    assert extras[ACT_METRICS].dtype.names == ("plan_value", "plan_gain", "plan_spread", "policy_gain")
    again, _, _ = act(agent, now, Mode.COLLECT)
    np.testing.assert_array_equal(collected, again)
    warm, _, _ = act(agent, now, Mode.EVALUATE, carry=carry)
    assert not np.array_equal(warm, evaluated), "the plan of the last row is where the next one starts"


def test_what_follows_an_invalid_transition_does_not_count() -> None:
    """The window goes on into the next episode."""
    rows = random_rows(SPECS, 1, HORIZON + 1)
    rows["truncated"][0, 1] = rows["is_first"][0, 2] = True
    assert make_batch(rows, DEFAULT).weight[:, 0].tolist() == [1, 0, 0]


def test_the_policy_proposes_by_acting_in_the_model() -> None:
    agent = make()
    latent = torch.from_numpy(make_generator("latent").random((1, 16), dtype=np.float32))
    with torch.inference_mode():
        found = agent.propose(latent, make_generator("noise"))
        noise = agent.noise(make_generator("noise"), 3, 4)
        z, expected = latent.expand(4, -1), []
        for t in range(3):
            expected.append(agent.policy(z).rsample(noise[t]))
            z = agent.model.next(z, expected[-1])
    assert found is not None
    torch.testing.assert_close(found[:, 0], torch.stack(expected))


def test_collecting_adds_noise_of_the_first_steps_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, now = make(), column_of(random_rows(SPECS, 4, 1))
    planner: Any = agent.planner
    plan = planner.plan

    def certain(*arguments: Any) -> Any:
        """The plan, certain of its first step alone."""
        found = plan(*arguments)
        std = torch.ones_like(found.proposal.std)
        std[0] = 0
        return found._replace(proposal=found.proposal._replace(std=std))

    monkeypatch.setattr(planner, "plan", certain)
    collected, _, _ = act(agent, now, Mode.COLLECT)
    evaluated, _, _ = act(agent, now, Mode.EVALUATE)
    np.testing.assert_array_equal(collected, evaluated)


def test_only_envs_that_act_are_planned_for() -> None:
    """An episode ends in env 1: its plan stays, and the others get what they would get without it."""
    agent, now = make(), column_of(random_rows(SPECS, 3, 1))
    now["terminated"] = np.array([False, True, False])
    carry = {"plan": np.full((3, 3, 2), 0.25, np.float32)}
    others = {key: values[[0, 2]] for key, values in now.items()}
    for mode in (Mode.COLLECT, Mode.EVALUATE):
        action, after, extras = act(agent, now, mode, carry=carry)
        expected, plans, _ = act(agent, others, mode, carry={"plan": carry["plan"][[0, 2]]})
        np.testing.assert_allclose(action[[0, 2]], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(after["plan"][[0, 2]], plans["plan"], rtol=1e-4, atol=1e-6)
        assert not action[1].any()
        assert (after["plan"][1] == 0.25).all()
        assert len(extras[ACT_METRICS]) == 2


def test_observing_plans_nothing() -> None:
    agent, now = make(), column_of(random_rows(SPECS, 4, 1))
    _, carry, extras = act(agent, now, Mode.OBSERVE)
    assert extras == {}
    np.testing.assert_array_equal(carry["plan"], agent.initial_carry(4)["plan"])


def test_the_policy_can_act_alone() -> None:
    agent, now = make(planner={"kind": "none"}), column_of(random_rows(SPECS, 4, 1))
    action, carry, extras = act(agent, now, Mode.EVALUATE)
    latent = agent.model.encode({"obs": torch.from_numpy(now["obs"])})
    np.testing.assert_allclose(action, agent.policy(latent).mean.tanh().detach().numpy(), rtol=1e-5)
    assert (carry, extras) == ({}, {})
    sampled, _, _ = act(agent, now, Mode.COLLECT)
    assert not np.allclose(action, sampled)


def test_images_are_shifted_in_updates_alone() -> None:
    specs = Specs(IMAGE, BOX)
    agent = make(specs, model={**TINY["model"], "channels": 4})
    rows = make_rows(specs)
    objective = agent.make_objective(rows, make_generator("update"))
    assert not np.array_equal(objective.batch.obs["obs"].numpy().swapaxes(0, 1), rows["obs"])
    unshifted = make(specs, image_shift=0, model={**TINY["model"], "channels": 4})
    objective = unshifted.make_objective(rows, make_generator("update"))
    np.testing.assert_array_equal(objective.batch.obs["obs"].numpy().swapaxes(0, 1), rows["obs"])
    agent.update(rows, Clock(), make_generator("update"))
    assert act(agent, column_of(rows), Mode.EVALUATE)[0].shape == (6, 2)


def test_the_discount_follows_from_the_time_limit() -> None:
    assert make().gamma == pytest.approx(0.99)
    assert make(Specs(VECTOR, BOX)).gamma == pytest.approx(0.995)
    assert make(gamma=0.7).gamma == 0.7


def test_held_out_losses_change_nothing() -> None:
    agent = make()
    before = agent.state()
    found = agent.held_out_metrics("update", make_rows(), Clock(), make_generator("validate"))
    assert {"loss_consistency", "loss_reward", "loss_value"} <= set(found)
    assert_same_state(before, agent.state())
