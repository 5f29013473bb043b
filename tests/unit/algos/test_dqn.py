"""DQN: targets by hand on a linear network, every head and space, and what acting and learning must keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dqn import DQN, DQNConfig
from reverie.core.reads import Transitions
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, Specs
from reverie.core.types import Clock, Mode, Row
from reverie.functional.transition_batch import n_step_transitions
from reverie.store.trees import read_tree, write_tree
from tests.unit.algos.batches import (
    DISCRETE,
    OBSERVATIONS,
    VECTOR,
    column_of,
    random_rows,
    with_other,
)  # fmt: skip

SPECS = Specs(VECTOR, DISCRETE)
RAINBOW = {"double": True, "dueling": True, "noisy": True, "n_step": 3, "head": {"kind": "categorical", "atoms": 11}}


def make_dqn(specs: Specs = SPECS, **values: Any) -> DQN:
    config = DQNConfig.model_validate({"network": {"kind": "mlp", "units": (8,)}, **values})
    return DQN(config, specs, make_generator("test weights"))


def parameters(dqn: DQN) -> torch.Tensor:
    return dqn.optimizer.flat.detach().clone()


# ---------------------------------------------------------------- targets by hand

TWO = Specs({"obs": ObservationSpec((2,), "float32", "vector")}, DISCRETE)
LEFT, RIGHT = [1.0, 0.0], [0.0, 1.0]
"""Two states. Online values: left 1 2 3, right 10 5 0; those of the target network: left 4 5 6, right 1 9 2."""


def make_linear(**values: Any) -> DQN:
    """A network whose values are the columns of a matrix."""
    dqn = make_dqn(TWO, network={"kind": "mlp", "units": ()}, **{"gamma": 0.5, "double": False, **values})
    tables = {dqn.online: [[1.0, 10.0], [2.0, 5.0], [3.0, 0.0]], dqn.target: [[4.0, 1.0], [5.0, 9.0], [6.0, 2.0]]}
    with torch.no_grad():
        for network, table in tables.items():
            network.head.advantage.weight.copy_(torch.tensor(table))
            network.head.advantage.bias.zero_()
    return dqn


def make_sample(states: list[list[float]], rewards: list[float], **flags: int) -> Row:
    """One sample whose actions are all 1. Flags name the column that has them."""
    length = len(states)
    batch = {
        "obs": np.array([states], np.float32),
        "action": np.ones((1, length), np.int64),
        "reward": np.array([[0.0, *rewards]], np.float32),
        **{name: np.zeros((1, length), bool) for name in ("is_first", "terminated", "truncated")},
    }
    for name, column in flags.items():
        batch[name][:, column] = True
    return batch


def target_of(dqn: DQN, batch: Row) -> float:
    """The target of the action taken, which both engines agree on."""
    assert dqn.numpy_engine is not None
    transitions = n_step_transitions(batch, dqn.config.gamma)
    next_q = dqn.numpy_engine.next_q(transitions.next_obs, dqn.config.double)
    by_numpy = transitions.rewards + transitions.discounts * next_q
    (microbatch,) = dqn.make_microbatches(transitions)
    by_torch = microbatch.rewards + microbatch.discounts * dqn.next_q(microbatch)[:, 0]
    assert float(by_torch) == by_numpy[0]
    error = abs(2 - by_numpy[0])  # the value of left, action 1, is 2
    loss = pytest.approx(0.5 * error**2 if error < 1 else error - 0.5)
    assert float(dqn.loss(microbatch).aux["losses"].detach()) == loss
    step = dqn.numpy_engine.gradient_step(transitions, dqn.config, 0.0, make_generator("update"))
    assert float(step.aux["losses"]) == loss
    return float(by_torch)


def test_one_step_target() -> None:
    batch = make_sample([LEFT, RIGHT], [0.5])
    assert target_of(make_linear(), batch) == 0.5 + 0.5 * 9
    assert target_of(make_linear(double=True), batch) == 0.5 + 0.5 * 1  # the online network would take action 0


def test_only_a_terminal_state_ends_the_value() -> None:
    assert target_of(make_linear(), make_sample([LEFT, RIGHT], [0.5], terminated=1)) == 0.5
    assert target_of(make_linear(), make_sample([LEFT, RIGHT], [0.5], truncated=1)) == 0.5 + 0.5 * 9


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 6),  # from the last row, left: 6
        ({"terminated": 2}, 1 + 0.5 * 2),
        ({"truncated": 2}, 1 + 0.5 * 2 + 0.25 * 9),  # from the row of the cut, right: 9
        ({"terminated": 3}, 1 + 0.5 * 2 + 0.25 * 4),
    ],
)
def test_n_step_target(flags: dict[str, int], expected: float) -> None:
    batch = make_sample([LEFT, LEFT, RIGHT, LEFT], [1, 2, 4], **flags)
    assert target_of(make_linear(n_step=3), batch) == expected


def test_n_step_target_with_padding() -> None:
    """Where the buffer has fewer steps than asked for it marks the rest as not valid."""
    batch = make_sample([LEFT, LEFT, RIGHT, LEFT], [1, 2, 4])
    batch["valid"] = np.array([[True, True, True, False]])
    assert target_of(make_linear(n_step=3), batch) == 1 + 0.5 * 2 + 0.25 * 9


def test_the_loss_moves_the_value_to_its_target() -> None:
    dqn = make_linear(learning_rate=0.05, target_rate=0.005, target_every=10**6)
    batch = make_sample([LEFT, RIGHT], [0.5])
    for updates in range(200):
        metrics = dqn.update(batch, Clock(updates=updates), make_generator("update")).metrics
    assert float(metrics["value"]) == pytest.approx(5, abs=0.05)


# ---------------------------------------------------------------- rows that do not count, importance


@pytest.mark.parametrize("kind", ["scalar", "categorical", "quantile"])
def test_final_rows_change_nothing(kind: str) -> None:
    batch = random_rows(SPECS, 6, 2)
    batch["terminated"][4:, 0] = True
    other = with_other(batch, np.s_[4:])
    assert not np.array_equal(other["obs"], batch["obs"])
    short = {key: value[:4] for key, value in batch.items()}
    ends = []
    for rows in (batch, other, short):
        dqn = make_dqn(head={"kind": kind}, learning_rate=0.01)
        dqn.update(rows, Clock(), make_generator("update"))
        ends.append(parameters(dqn))
    assert torch.equal(ends[0], ends[1])
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-6)  # the mean is over real transitions
    assert not torch.equal(ends[0], parameters(make_dqn(head={"kind": kind})))


def test_importance_weighs_the_losses_and_priorities_go_back() -> None:
    batch = random_rows(SPECS, 4, 2)
    batch["id"] = np.arange(8).reshape(4, 2)
    assert make_dqn().update(batch, Clock(), make_generator("u")).write_back is None
    one_only = {**batch, "importance": np.array([[0.0], [0.0], [4.0], [0.0]], np.float32).repeat(2, 1)}
    alone = {key: value[2:3] for key, value in batch.items()}
    weighted, single = make_dqn(), make_dqn()
    update = weighted.update(one_only, Clock(), make_generator("u"))
    single_update = single.update(alone, Clock(), make_generator("u"))
    torch.testing.assert_close(parameters(weighted), parameters(single), rtol=0, atol=1e-6)
    assert update.write_back is not None
    assert update.write_back.ids.tolist() == [0, 2, 4, 6]
    priority = update.write_back.columns["priority"]
    expected = weighted.online.head.td_errors(torch.as_tensor(single_update.metrics["loss"]))
    assert priority[2] == pytest.approx(float(expected), rel=1e-5)  # importance weights do not change priorities
    assert len(np.unique(priority)) == 4


# ---------------------------------------------------------------- the target network


def test_the_target_network_is_copied_after_target_every_updates() -> None:
    dqn = make_dqn(target_every=3, target_rate=1.0)
    start = dqn.target_flat.clone()
    for updates in range(3):
        assert torch.equal(dqn.target_flat, start)
        dqn.update(random_rows(SPECS, 8, 2), Clock(updates=updates), make_generator("u"))
    assert torch.equal(dqn.target_flat, parameters(dqn))
    assert not torch.equal(dqn.target_flat, start)


def test_the_target_network_moves_by_the_target_rate() -> None:
    dqn = make_dqn(target_rate=0.25, learning_rate=0.1)
    start = dqn.target_flat.clone()
    dqn.update(random_rows(SPECS, 8, 2), Clock(), make_generator("u"))
    torch.testing.assert_close(dqn.target_flat, start + 0.25 * (parameters(dqn) - start))
    weights = torch.cat([parameter.flatten() for parameter in dqn.target.parameters()])
    assert torch.equal(weights, dqn.target_flat)  # the flat vector holds the network's own weights


def test_the_target_network_has_no_gradient() -> None:
    dqn = make_dqn(double=True)
    assert all(not parameter.requires_grad for parameter in dqn.target.parameters())
    assert all(parameter.requires_grad for parameter in dqn.online.parameters())


# ---------------------------------------------------------------- acting


def test_epsilon_falls_with_the_env_steps() -> None:
    dqn = make_dqn(epsilon={"start": 1.0, "end": 0.1, "from": 0, "to": 100})
    row = {key: np.repeat(value[:1], 6000, 0) for key, value in column_of(random_rows(SPECS, 1, 1)).items()}
    greedy, _, _ = dqn.act(row, {}, Clock(), make_generator("act"), Mode.EVALUATE)
    for steps, epsilon in ((0, 1.0), (50, 0.55), (100, 0.1), (500, 0.1)):
        action, carry, extras = dqn.act(row, {}, Clock(env_steps=steps), make_generator("act"), Mode.COLLECT)
        assert (carry, extras) == ({}, {})
        assert np.mean(action != greedy) == pytest.approx(epsilon * 2 / 3, abs=0.03)
    metrics = dqn.update(random_rows(SPECS, 4, 2), Clock(env_steps=50), make_generator("u")).metrics
    assert metrics["epsilon"] == pytest.approx(0.55)


@pytest.mark.parametrize("noisy", [False, True])
def test_evaluation_is_greedy_and_draws_nothing(noisy: bool) -> None:
    dqn, rng = make_dqn(noisy=noisy, epsilon=0.0 if noisy else 1.0), make_generator("act")
    state = rng.bit_generator.state
    rows = column_of(random_rows(SPECS, 300, 1))
    first, _, _ = dqn.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    second, _, _ = dqn.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    assert np.array_equal(first, second)
    assert rng.bit_generator.state == state
    drawn, _, _ = dqn.act(rows, {}, Clock(), rng, Mode.COLLECT)
    assert not np.array_equal(first, drawn)
    assert np.array_equal(dqn.act(rows, {}, Clock(), rng, Mode.EVALUATE)[0], first)  # noise does not stay


@pytest.mark.parametrize("values", [{}, {"noisy": True}, {"network": {"kind": "gru", "units": 4}}], ids=str)
def test_observing_advances_the_stream_and_the_carry_as_acting_does(values: dict[str, Any]) -> None:
    ends = []
    for mode in (Mode.COLLECT, Mode.OBSERVE):
        dqn, rng = make_dqn(epsilon=0.5, **values), make_generator("act")
        rows = column_of(random_rows(SPECS, 30, 1))
        action, carry, extras = dqn.act(rows, dqn.initial_carry(30), Clock(), rng, mode)
        assert (action.shape, extras) == ((30,), {})
        ends.append((rng.bit_generator.state, {key: np.asarray(part).tobytes() for key, part in carry.items()}))
    # The number of random actions, and with it of draws, does not depend on the values.
    assert ends[0] == ends[1]


def test_both_networks_have_noise_of_their_own_in_updates() -> None:
    dqn = make_dqn(noisy=True)
    dqn.update(random_rows(SPECS, 4, 2), Clock(), make_generator("u"))
    online, target = (network.noisy_layers[0].input_noise for network in (dqn.online, dqn.target))
    assert online.abs().sum() > 0
    assert target.abs().sum() > 0
    assert not torch.equal(online, target)


# ---------------------------------------------------------------- spaces, settings, state


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_observation_acts_and_learns(name: str) -> None:
    specs = Specs(OBSERVATIONS[name], DISCRETE)
    kind = {"image": "nature", "mixed": "impala"}.get(name, "mlp")
    dqn = make_dqn(specs, network={"kind": kind, "units": (8,)}, **RAINBOW)
    before = parameters(dqn)
    for mode in Mode:
        action, _, _ = dqn.act(column_of(random_rows(specs, 3, 1)), {}, Clock(), make_generator("act"), mode)
        assert action.shape == (3,)
        assert action.dtype == np.int64
    update = dqn.update(random_rows(specs, 5, 4), Clock(), make_generator("update"))
    assert update.count == 1
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert not torch.equal(parameters(dqn), before)


def test_a_phase_may_change_what_is_read() -> None:
    dqn = make_dqn(batch_size=5, n_step=1)
    assert dqn.reads == {"update": Transitions(5, 1)}
    dqn.config = dqn.config.model_copy(update={"batch_size": 7, "n_step": 3})
    assert dqn.reads == {"update": Transitions(7, 3)}


def test_schedules_read_the_clock() -> None:
    dqn = make_dqn(learning_rate={"start": 1e-2, "end": 0.0, "from": 0, "to": 100})
    before = parameters(dqn)
    dqn.update(random_rows(SPECS, 4, 2), Clock(env_steps=100), make_generator("u"))
    assert torch.equal(parameters(dqn), before)
    dqn.update(random_rows(SPECS, 4, 2), Clock(env_steps=99), make_generator("u"))
    assert not torch.equal(parameters(dqn), before)


def test_long_gradients_are_clipped() -> None:
    batch = random_rows(SPECS, 8, 2)
    batch["reward"] *= 100
    plain = {"learning_rate": 1e3, "optimizer": {"kind": "adam", "epsilon": 1e3}}  # steps as long as gradients
    free, tied = make_dqn(max_grad_norm=None, **plain), make_dqn(max_grad_norm=0.01, **plain)
    moves = []
    for dqn in (free, tied):
        before = parameters(dqn)
        norm = float(dqn.update(batch, Clock(), make_generator("u")).metrics["grad_norm"])
        moves.append(torch.linalg.vector_norm((parameters(dqn) - before).double()))
    assert float(moves[1] / moves[0]) == pytest.approx(0.01 / norm, rel=0.1)


@pytest.mark.parametrize("values", [{}, RAINBOW])
def test_gradient_norms_of_trunk_and_head_are_metrics(values: dict[str, Any]) -> None:
    dqn = make_dqn(max_grad_norm=0.01, **values)
    batch = random_rows(SPECS, 8, dqn.config.n_step + 1)
    first, second = (dqn.update(batch, Clock(), make_generator("u")).metrics for _ in range(2))
    trunk, head, both = (float(first[name]) for name in ("grad_norm_trunk", "grad_norm_head", "grad_norm"))
    assert trunk > 0
    assert head > 0
    assert np.hypot(trunk, head) == pytest.approx(both, rel=1e-4)
    assert not any(name.startswith("grad_norm_") for name in second)  # measured every NORMS_EVERY updates


def test_a_trunk_without_weights_has_no_gradient_norm() -> None:
    dqn = make_dqn(network={"kind": "mlp", "units": ()})
    metrics = dqn.update(random_rows(SPECS, 8, 2), Clock(), make_generator("u")).metrics
    assert "grad_norm_head" in metrics
    assert "grad_norm_trunk" not in metrics


@pytest.mark.parametrize("values", [{}, RAINBOW, {"head": {"kind": "quantile"}, "dueling": True}])
def test_state_continues_exactly(values: dict[str, Any], tmp_path: Any) -> None:
    one, two = make_dqn(**values), make_dqn(**values)
    length = one.reads["update"].n + 1  # type: ignore[attr-defined]
    for updates in range(3):
        one.update(random_rows(SPECS, 6, length, updates), Clock(updates=updates), make_generator(updates))
    write_tree(tmp_path / "state", one.state())
    two.load_state(read_tree(tmp_path / "state"))
    for dqn in (one, two):
        dqn.update(random_rows(SPECS, 6, length, 7), Clock(updates=3), make_generator("next"))
    assert torch.equal(parameters(one), parameters(two))
    assert torch.equal(one.target_flat, two.target_flat)


def test_a_loaded_policy_acts_the_same() -> None:
    one, two = make_dqn(noisy=True), make_dqn(noisy=True)
    one.update(random_rows(SPECS, 8, 2), Clock(), make_generator("u"))
    two.load_policy_state(one.policy_state())
    rows = column_of(random_rows(SPECS, 50, 1))
    actions = [dqn.act(rows, {}, Clock(), make_generator("a"), Mode.COLLECT)[0] for dqn in (one, two)]
    assert np.array_equal(*actions)
