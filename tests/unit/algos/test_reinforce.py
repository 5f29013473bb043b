"""REINFORCE: its four combinations by hand, every space, and padding without effect."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.reinforce import Reinforce, ReinforceConfig
from reverie.core.reads import Episodes
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Clock, Mode, Row
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    MIXED,
    MULTI_BINARY,
    MULTI_DISCRETE,
    VECTOR,
    column_of,
    random_rows,
)  # fmt: skip

SPECS = Specs(VECTOR, DISCRETE)
ACTIONS = {spec.kind: spec for spec in (DISCRETE, BOX, MULTI_DISCRETE, MULTI_BINARY)}


def make_reinforce(specs: Specs = SPECS, **values: Any) -> Reinforce:
    config = ReinforceConfig.model_validate({"network": {"kind": "mlp", "units": (8,)}, **values})
    return Reinforce(config, specs, make_generator("test weights"))


def parameters(agent: Reinforce) -> torch.Tensor:
    return agent.optimizer.flat.detach().clone()


def make_episodes(specs: Specs = SPECS, seed: int = 0) -> Row:
    """Two episodes as the buffer serves them: three rows, terminated, then padding; four rows, truncated.

    Rewards 1 2 and 4 0 4.
    """
    batch = random_rows(specs, 2, 4, seed)
    batch["reward"] = np.array([[0, 1, 2, 0], [0, 4, 0, 4]], np.float32)
    batch["is_first"][:, 0] = batch["terminated"][0, 2] = batch["truncated"][1, 3] = True
    batch["valid"] = np.array([[True, True, True, False], [True] * 4])
    return batch


def make_uniform(**values: Any) -> Reinforce:
    """All actions alike, all values 10."""
    agent = make_reinforce(**{"gamma": 0.5, "normalise": False, "value_weight": 0.5, **values})
    with torch.no_grad():
        agent.optimizer.flat.zero_()
        agent.model.value_head.bias.fill_(10)
    return agent


# Rewards to go with gamma 1/2: (2, 2) and (5, 2, 4); the truncated episode with a bootstrap of 10: (6.25, 4.5, 9). The
# baseline learns them in all four combinations.
TO_GO = {"returns": [2, 2, 5, 2, 4], "advantages": [2, 2, 6.25, 4.5, 9]}
ADVANTAGES = {
    ("reward_to_go", "returns"): [2, 2, 5, 2, 4],
    ("episode", "returns"): [2, 2, 5, 5, 5],
    ("reward_to_go", "advantages"): [2 - 10, 2 - 10, 6.25 - 10, 4.5 - 10, 9 - 10],
    ("episode", "advantages"): [2 - 10, 2 - 10, 6.25 - 10, 6.25 - 10, 6.25 - 10],
}


@pytest.mark.parametrize(("returns", "targets"), ADVANTAGES)
def test_the_four_combinations(returns: str, targets: str) -> None:
    advantages = np.array(ADVANTAGES[returns, targets])
    agent = make_uniform(returns=returns, targets=targets)
    update = agent.update(make_episodes(), Clock(), make_generator("u"))
    metrics = {key: float(value) for key, value in update.metrics.items()}
    assert metrics["policy_loss"] == pytest.approx(math.log(3) * advantages.mean())
    assert metrics["entropy"] == pytest.approx(math.log(3))
    value_loss = np.square(np.array(TO_GO[targets]) - 10).mean()
    assert metrics["value_loss"] == pytest.approx(value_loss)
    baseline = 0.5 * value_loss if targets == "advantages" else 0
    assert metrics["loss"] == pytest.approx(metrics["policy_loss"] + baseline, rel=1e-5)


def test_whole_returns_are_compared_with_the_value_of_the_first_row() -> None:
    agent = make_uniform(returns="episode", targets="advantages")
    rows = {key: torch.as_tensor(value) for key, value in make_episodes().items()}
    values = torch.tensor([[1.0, 20, 30, 40], [3, 50, 60, 10]])  # 10: bootstrap of the truncated episode
    assert agent.targets(rows, values).advantages.tolist() == [[2 - 1, 2 - 1, 0], [6.25 - 3] * 3]


def test_log_probabilities_are_multiplied_with_the_returns_of_their_actions() -> None:
    """The gradient of the logits' bias is the mean of advantage * (probability - one-hot action)."""
    batch = make_episodes()
    batch["action"] = np.array([[0, 1, 2, 0], [1, 0, 2, 1]])
    agent = make_uniform(targets="returns")
    agent.update(batch, Clock(), make_generator("u"))
    taken, advantages = [0, 1, 1, 0, 2], np.array(ADVANTAGES["reward_to_go", "returns"])
    expected = (advantages[:, None] * (1 / 3 - np.eye(3)[taken])).mean(0)
    gradient = agent.model.action_head.output.bias.grad
    assert gradient is not None
    assert gradient.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_advantages_are_normalised() -> None:
    batch = make_episodes()
    agent = make_uniform(targets="returns", normalise=True)
    assert float(agent.update(batch, Clock(), make_generator("u")).metrics["policy_loss"]) == pytest.approx(0, abs=1e-6)
    ends = []
    for factor in (1, 100):
        agent = make_reinforce(targets="returns", max_grad_norm=None)
        agent.update({**batch, "reward": batch["reward"] * factor}, Clock(), make_generator("u"))
        ends.append(parameters(agent))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-5)


def test_entropy_is_rewarded() -> None:
    plain, rewarded = make_uniform(), make_uniform(entropy_weight=0.7)
    losses = [float(a.update(make_episodes(), Clock(), make_generator("u")).metrics["loss"]) for a in (plain, rewarded)]
    assert losses[0] - losses[1] == pytest.approx(0.7 * math.log(3), rel=1e-4)


def test_without_a_baseline_no_value_is_learned() -> None:
    for targets, moves in (("returns", False), ("advantages", True)):
        agent = make_reinforce(targets=targets)
        before = [p.detach().clone() for p in (*agent.model.critic_trunk.parameters(), agent.model.value_head.weight)]
        agent.update(make_episodes(), Clock(), make_generator("u"))
        after = [*agent.model.critic_trunk.parameters(), agent.model.value_head.weight]
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)) == moves


def test_final_rows_and_padding_change_nothing() -> None:
    batch = make_episodes()
    other = {key: value.copy() for key, value in batch.items()}
    other["action"][[0, 0, 1], [2, 3, 3]] += 1
    other["action"] %= 3
    other["obs"][0, 2:] += 5  # observations of the final row and of padding
    other["reward"][0, 3] = 77
    longer = {key: np.concatenate([value, np.zeros_like(value)], 1) for key, value in batch.items()}
    ends = []
    for rows in (batch, other, longer):
        agent = make_reinforce()
        agent.update(rows, Clock(), make_generator("u"))
        ends.append(parameters(agent))
    assert torch.equal(ends[0], ends[1])
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-6)


def test_observations_of_truncated_final_rows_affect_only_the_baseline() -> None:
    batch = make_episodes()
    other = {**batch, "obs": batch["obs"].copy()}
    other["obs"][1, 3] += 5
    for targets, same in (("returns", True), ("advantages", False)):
        agents = [make_reinforce(targets=targets), make_reinforce(targets=targets)]
        for agent, rows in zip(agents, (batch, other), strict=True):
            agent.update(rows, Clock(), make_generator("u"))
        assert torch.equal(parameters(agents[0]), parameters(agents[1])) == same


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("observations", [VECTOR, MIXED], ids=["vector", "mixed"])
@pytest.mark.parametrize("shared", [False, True])
def test_every_space_acts_and_learns(kind: str, observations: Any, shared: bool) -> None:
    specs = Specs(observations, ACTIONS[kind])
    network = {"kind": "impala" if observations is MIXED else "mlp", "units": (8,)}
    agent = make_reinforce(specs, network=network, shared_trunk=shared)
    assert agent.reads == {"update": Episodes()}
    before = parameters(agent)
    for mode in Mode:
        action, carry, extras = agent.act(
            column_of(random_rows(specs, 3, 1)), agent.initial_carry(3), Clock(), make_generator("act"), mode
        )  # fmt: skip
        assert (action.shape, action.dtype) == ((3, *specs.action.shape), specs.action.dtype)
        assert (carry, extras) == ({}, {})
    update = agent.update(make_episodes(specs), Clock(), make_generator("update"))
    assert update.count == 1
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert not torch.equal(parameters(agent), before)


@pytest.mark.parametrize("action", [DISCRETE, BOX], ids=lambda action: action.kind)
def test_better_actions_become_likelier(action: ActionSpec) -> None:
    """Episodes of one step, with a reward for action 2 or for large actions."""
    specs = Specs(VECTOR, action)
    agent = make_reinforce(specs, learning_rate=0.02)
    batch = random_rows(specs, 64, 2)
    batch["is_first"][:, 0] = batch["terminated"][:, 1] = True
    batch["valid"] = np.ones((64, 2), bool)
    rng = make_generator("act")
    for _ in range(60):
        batch["action"][:, 0] = agent.act(column_of(batch), {}, Clock(), rng, Mode.COLLECT)[0]
        done = batch["action"][:, 0]
        batch["reward"][:, 1] = done == 2 if action.kind == "discrete" else done.sum(-1)
        agent.update(batch, Clock(), rng)
    best = agent.act(column_of(batch), {}, Clock(), rng, Mode.EVALUATE)[0]
    assert (best == 2).all() if action.kind == "discrete" else (best > 0.3).all()


def test_evaluation_is_greedy_and_draws_nothing() -> None:
    specs = Specs(VECTOR, BOX)
    agent, rng = make_reinforce(specs), make_generator("act")
    state = rng.bit_generator.state
    rows = column_of(random_rows(specs, 8, 1))
    first, _, _ = agent.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    second, _, _ = agent.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    assert np.array_equal(first, second)
    assert rng.bit_generator.state == state
    assert not np.array_equal(first, agent.act(rows, {}, Clock(), rng, Mode.COLLECT)[0])


def test_schedules_follow_the_clock() -> None:
    agent = make_reinforce(learning_rate={"start": 1e-2, "end": 0.0, "from": 0, "to": 100})
    before = parameters(agent)
    agent.update(make_episodes(), Clock(env_steps=100), make_generator("u"))
    assert torch.equal(parameters(agent), before)


def test_state_continues_exactly() -> None:
    one, two = make_reinforce(), make_reinforce()
    one.update(make_episodes(), Clock(), make_generator("a"))
    two.load_state(one.state())
    for agent in (one, two):
        agent.update(make_episodes(seed=1), Clock(), make_generator("b"))
    assert torch.equal(parameters(one), parameters(two))
