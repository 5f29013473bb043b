"""TD-MPC's losses against a slow form written from the formulas, what trains what, and its plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.algos.tdmpc import TDMPC, Objective
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock, Mode, Row
from reverie.nets.optim import gradient_of
from tests.sessions import assert_same_state
from tests.unit.algos.batches import BOX, IMAGE, VECTOR, column_of, random_rows, with_other

SPECS = Specs(VECTOR, BOX, max_episode_steps=500)
HORIZON, COUNT, WIDTH = 3, 6, 12
TINY: dict[str, Any] = {
    "model": {"kind": "told", "latent": 7, "units": WIDTH, "encoder_units": 10},
    "planner": {"kind": "mppi", "samples": 20, "policy_samples": 4, "elites": 5, "iterations": 2, "horizon": 3},
    "train_horizon": HORIZON,
}  # fmt: skip
PARTS = ("encoder", "model", "critics")


def make(specs: Specs = SPECS, **values: Any) -> TDMPC:
    """An agent whose heads are not zero, and whose targets differ from what they follow."""
    agent = TDMPC(TDMPC.Config.model_validate({**TINY, **values}), specs, make_generator("weights"))
    rng = make_generator("disturb")
    with torch.no_grad():
        for module in (agent.model, agent.policy, agent.critics, agent.target_encoder, agent.target_critics):
            for weight in module.parameters():
                weight.add_(0.2 * torch.from_numpy(rng.standard_normal(weight.shape, dtype=np.float32)))
    return agent


def make_rows(specs: Specs = SPECS, seed: int = 0) -> Row:
    """Sequences of four rows. One episode terminates at the end, one is truncated after the first transition."""
    rows = random_rows(specs, COUNT, HORIZON + 1, seed)
    rows["terminated"][1, 3] = rows["truncated"][2, 1] = True
    valid = np.ones(rows["is_first"].shape, bool)
    valid[2, 2:] = False
    ids = np.arange(valid.size).reshape(valid.shape)
    importance = np.linspace(0.5, 1, valid.size, dtype=np.float32).reshape(valid.shape)
    return rows | {"valid": valid, "id": ids, "importance": importance}


# -------------------------------------------------------------------- the slow form


def value_of(critics: Any, member: int, latent: Tensor, action: Tensor) -> Tensor:
    """One Q-function, layer by layer."""
    x = torch.cat([latent, action]) @ critics.first.weight[member] + critics.first.bias[member, 0]
    x = torch.tanh(F.layer_norm(x, x.shape) * critics.scale[member, 0] + critics.shift[member, 0])
    x = F.elu(x @ critics.second.weight[member] + critics.second.bias[member, 0])
    return (x @ critics.output.weight[member] + critics.output.bias[member, 0])[0]


def act_with(agent: TDMPC, latent: Tensor, noise: Tensor) -> Tensor:
    """The policy's action: tanh, plus noise of 0.05, clipped to 0.3."""
    return torch.tanh(agent.policy.layers(latent[None])[0]) + (0.05 * noise).clamp(-0.3, 0.3)


def slow_losses(agent: TDMPC, rows: Row, objective: Objective) -> tuple[Tensor, dict[str, list[float]], list[float]]:
    """The objective, the losses and the priorities of each sequence, step by step."""
    obs, actions = torch.from_numpy(rows["obs"]), torch.from_numpy(rows["action"])
    total, priorities = torch.zeros(()), []
    sums: dict[str, list[float]] = {"consistency": [], "reward": [], "value": []}
    for b in range(COUNT):
        latent = agent.model.encode({"obs": obs[b, :1]})[0]
        parts = {name: torch.zeros(()) for name in sums}
        priority = 0.0
        for t in range(1 if b == 2 else HORIZON):
            with torch.no_grad():
                wanted = agent.target_encoder({"obs": obs[b, t + 1][None]})[0]
                following = agent.model.encode({"obs": obs[b, t + 1][None]})[0]
                action = act_with(agent, following, objective.target_noise[t, b])
                smaller = min(value_of(agent.target_critics, member, following, action) for member in range(2))
                ended = float(rows["terminated"][b, t + 1])
                target = float(rows["reward"][b, t + 1]) + 0.99 * (1 - ended) * smaller
            pair = torch.cat([latent, actions[b, t]])
            values = [value_of(agent.critics, member, latent, actions[b, t]) for member in range(2)]
            rho = 0.5**t
            parts["reward"] = parts["reward"] + rho * (agent.model.reward_head(pair)[0] - rows["reward"][b, t + 1]) ** 2
            parts["value"] = parts["value"] + rho * sum((value - target) ** 2 for value in values)
            priority += rho * sum(abs(float((value - target).detach())) for value in values)
            latent = agent.model.dynamics(pair)
            parts["consistency"] = parts["consistency"] + rho * ((latent - wanted) ** 2).mean()
        own = 2 * parts["consistency"] + 0.5 * parts["reward"] + 0.1 * parts["value"]
        total = total + float(rows["importance"][b, 0]) * own / COUNT / HORIZON
        priorities.append(priority)
        for name, part in parts.items():
            sums[name].append(float(part.detach()))
    return total, sums, priorities


def test_the_joint_objective_is_that_of_the_slow_form() -> None:
    agent, rows = make(), make_rows()
    objective = agent.make_objective(rows, make_generator("update"))
    found = agent.model_loss(objective)
    total, sums, priorities = slow_losses(agent, rows, objective)
    for name, each in sums.items():
        assert float(found.metrics[f"loss_{name}"].detach()) == pytest.approx(np.mean(each), rel=1e-4)
    assert float(found.total.detach()) == pytest.approx(float(total.detach()), rel=1e-4)
    assert found.aux["td_errors"].tolist() == pytest.approx(priorities, rel=1e-4)
    weights = [*agent.model.parameters(), *agent.critics.parameters()]
    for own, wanted in zip(torch.autograd.grad(found.total, weights), torch.autograd.grad(total, weights), strict=True):
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=1e-6)


def test_the_policy_objective_is_that_of_the_slow_form() -> None:
    agent, rows = make(), make_rows()
    objective = agent.make_objective(rows, make_generator("update"))
    with torch.no_grad():
        latents, _ = agent.unroll(objective.batch)
    expected = torch.zeros(())
    for t in range(HORIZON + 1):
        counted = [b for b in range(COUNT) if b != 2 or t < 2]
        values = []
        for b in counted:
            action = act_with(agent, latents[t, b], objective.policy_noise[t, b])
            values.append(torch.minimum(*(value_of(agent.critics, member, latents[t, b], action) for member in (0, 1))))
        expected = expected - 0.5**t * torch.stack(values).mean()
    found = agent.policy_loss(latents, objective.batch, objective.policy_noise)
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    weights = list(agent.policy.parameters())
    for own, wanted in zip(
        torch.autograd.grad(found.total, weights), torch.autograd.grad(expected, weights), strict=True
    ):
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=1e-6)


def test_losses_above_the_limit_have_no_gradient() -> None:
    agent = make(loss_limit=1e-3, loss_weights={"consistency": 0, "reward": 1, "value": 0})
    objective = agent.make_objective(make_rows(), make_generator("update"))
    gradients = torch.autograd.grad(
        agent.model_loss(objective).total, list(agent.model.parameters()), materialize_grads=True, allow_unused=True
    )
    assert sum(float(gradient.abs().sum()) for gradient in gradients) == 0


# -------------------------------------------------------------------- what trains what


def weights_of(agent: TDMPC) -> dict[str, Tensor]:
    found = {name: optimizer.flat.data.clone() for name, optimizer in agent.optimizers.items()}
    targets = {f"target {name}": flat.clone() for name, flat in agent.target_flat.items()}
    return found | targets | {"policy": agent.policy_optimizer.flat.data.clone()}


@pytest.mark.parametrize(
    ("hook", "trained"),
    [
        ("update", {*PARTS, "policy", "target encoder", "target critics"}),
        ("update_world_model", {"encoder", "model", "target encoder"}),
        ("update_controller", {"critics", "policy", "target critics"}),
    ],
)
def test_each_hook_trains_its_networks(hook: str, trained: set[str]) -> None:
    agent = make()
    before = weights_of(agent)
    getattr(agent, hook)(make_rows(), Clock(), make_generator("update"))
    after = weights_of(agent)
    assert {name for name in before if not torch.equal(before[name], after[name])} == trained


def test_targets_and_policy_give_the_model_no_gradient() -> None:
    agent = make()
    objective = agent.make_objective(make_rows(), make_generator("update"))._replace(trains_model=False)
    loss = agent.model_loss(objective).total
    targets = [*agent.target_encoder.parameters(), *agent.target_critics.parameters()]
    assert not any(weight.requires_grad for weight in targets)
    others = [*agent.model.parameters(), *agent.policy.parameters()]
    assert torch.autograd.grad(loss, others, allow_unused=True) == (None,) * len(others)
    with torch.no_grad():
        latents, _ = agent.unroll(objective.batch)
    policy_loss = agent.policy_loss(latents, objective.batch, objective.policy_noise).total
    others = [*agent.model.parameters(), *agent.critics.parameters()]
    assert torch.autograd.grad(policy_loss, others, allow_unused=True) == (None,) * len(others)


def test_targets_follow_every_second_update() -> None:
    agent = make(target_rate=0.25)
    before = weights_of(agent)
    agent.update(make_rows(), Clock(updates=1), make_generator("update"))
    after = weights_of(agent)
    for name in ("encoder", "critics"):
        assert torch.equal(before[f"target {name}"], after[f"target {name}"])
    agent.update(make_rows(), Clock(updates=2), make_generator("update"))
    for name in ("encoder", "critics"):
        expected = before[f"target {name}"].lerp(agent.optimizers[name].flat.data, 0.25)
        torch.testing.assert_close(agent.target_flat[name], expected)


def test_rows_after_the_end_of_an_episode_change_nothing() -> None:
    one, other = make(), make()
    rows = make_rows()
    changed = with_other(rows, ~rows["valid"]) | {"id": rows["id"], "importance": rows["importance"]}
    for agent, batch in ((one, rows), (other, changed)):
        agent.update(batch, Clock(), make_generator("update"))
    assert_same_state(one.state(), other.state())


def test_model_and_critics_are_clipped_together() -> None:
    agent = make(max_grad_norm=1e-3)
    agent.update(make_rows(), Clock(), make_generator("update"))
    gradients = [gradient_of(p) for part in PARTS for p in agent.optimizers[part].parameters]
    assert float(torch.cat([g.flatten() for g in gradients]).norm()) == pytest.approx(1e-3, rel=1e-2)


def test_priorities_go_to_the_first_rows() -> None:
    agent, rows = make(), make_rows()
    update = agent.update(rows, Clock(), make_generator("update"))
    assert update.write_back is not None
    np.testing.assert_array_equal(update.write_back.ids, rows["id"][:, 0])
    assert update.write_back.columns["priority"].shape == (COUNT,)
    assert agent.update_world_model(rows, Clock(), make_generator("update")).write_back is None


def test_heads_start_at_zero() -> None:
    agent = TDMPC(TDMPC.Config.model_validate(TINY), SPECS, make_generator("weights"))
    latent, action = torch.linspace(-1, 1, 35).view(5, 7), torch.linspace(-1, 1, 10).view(5, 2)
    with torch.no_grad():
        assert not agent.model.step(latent, action)[1].any()
        assert not agent.q_values(latent, action).any()


def test_images_are_encoded() -> None:
    specs = Specs(IMAGE, BOX, max_episode_steps=500)
    agent = make(specs, model={**TINY["model"], "channels": 4})
    rows = make_rows(specs)
    before = agent.optimizers["encoder"].flat.data.clone()
    agent.update(rows, Clock(), make_generator("update"))
    assert not torch.equal(before, agent.optimizers["encoder"].flat.data)


# -------------------------------------------------------------------- acting


def test_scores_are_predicted_returns_with_the_smaller_value_at_the_end() -> None:
    agent = make()
    latent = torch.from_numpy(make_generator("latent").random((2, 7), dtype=np.float32))
    candidates = torch.from_numpy(make_generator("actions").uniform(-1, 1, (3, 2, 20, 2)).astype(np.float32))
    with torch.inference_mode():
        drawn = agent.score_noise(make_generator("noise"), 2)
        found = agent.score(latent, candidates, drawn, 1)
        for env, candidate in ((0, 0), (1, 13)):
            z, total = latent[env], torch.zeros(())
            for t in range(3):
                pair = torch.cat([z, candidates[t, env, candidate]])
                total = total + 0.99**t * agent.model.reward_head(pair)[0]
                z = agent.model.dynamics(pair)
            action = act_with(agent, z, drawn.final[1, env, candidate])
            total = total + 0.99**3 * min(value_of(agent.critics, member, z, action) for member in range(2))
            assert float(found[env, candidate]) == pytest.approx(float(total), rel=1e-4)


def test_plans_grow_longer() -> None:
    """At first one step is planned, and what comes after it keeps its mean."""
    growing = {"growing_horizon": {"start": 1, "end": 3, "from": 0, "to": 100}}
    agent = make(planner={**TINY["planner"], **growing})
    now = column_of(random_rows(SPECS, 4, 1)) | {"is_first": np.zeros(4, bool)}
    planner = agent.planner
    assert planner is not None
    assert [planner.steps(Clock(env_steps=steps)) for steps in (0, 49, 50, 100, 500)] == [1, 1, 2, 3, 3]
    carry = {"plan": np.full((4, 3, 2), 0.5, np.float32)}
    for steps, planned in ((0, 1), (60, 2), (100, 3)):
        _, after, _ = agent.act(now, carry, Clock(env_steps=steps), make_generator("act"), Mode.COLLECT)
        kept = np.array([[0.5, 0.5], [0.5, 0.5], [0, 0]])  # shifted by a step
        assert (after["plan"][:, planned:] == kept[planned:]).all()
        assert (after["plan"][:, :planned] != kept[:planned]).all()


def test_collecting_without_a_planner_adds_the_policys_noise() -> None:
    agent = make(planner={"kind": "none"})
    now = column_of(random_rows(SPECS, 4, 1))
    latent = agent.model.encode({"obs": torch.from_numpy(now["obs"])})
    evaluated, _, _ = agent.act(now, {}, Clock(), make_generator("act"), Mode.EVALUATE)
    collected, _, _ = agent.act(now, {}, Clock(), make_generator("act"), Mode.COLLECT)
    mean = torch.tanh(agent.policy.layers(latent)).detach().numpy()
    np.testing.assert_allclose(evaluated, mean, rtol=1e-5)
    assert 0 < np.abs(collected - evaluated).max() <= 0.3
