"""SAC: losses by hand on networks with constant outputs, both kinds of actions, and the target entropy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from reverie.algos.sac import SAC, SACConfig
from reverie.core.reads import Transitions
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Clock, Mode, Row
from reverie.functional.transition_batch import n_step_transitions
from reverie.nets.ensemble import EnsembleLinear
from reverie.store.trees import read_tree, write_tree
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    IMAGE,
    OBSERVATIONS,
    VECTOR,
    column_of,
    random_rows,
    with_other,
)  # fmt: skip

CONTINUOUS, CHOICE = Specs(VECTOR, BOX), Specs(VECTOR, DISCRETE)
FIXED = {"kind": "fixed", "value": 0.5}
ZEROS = torch.zeros(1, 2)
LOG_DENSITY = -math.log(2 * math.pi)
"""Of a standard normal variable in two dimensions at its mean, where tanh has slope 1."""


def make_sac(specs: Specs = CONTINUOUS, **values: Any) -> SAC:
    config = SACConfig.model_validate({"units": (8,), "image_features": 8, **values})
    return SAC(config, specs, make_generator("test weights"))


def parameters(sac: SAC) -> torch.Tensor:
    return torch.cat([sac.critic_optimizer.flat.detach(), sac.actor_optimizer.flat.detach()])


@torch.no_grad()
def set_output(network: nn.Module, values: list[Any]) -> None:
    """Make a network return these constants for every input."""
    last = [layer for layer in network.modules() if isinstance(layer, nn.Linear | EnsembleLinear)][-1]
    last.weight.zero_()
    last.bias.copy_(torch.tensor(values))


def make_constant(specs: Specs, policy: list[float], critics: list[Any], targets: list[Any], **values: Any) -> SAC:
    sac = make_sac(specs, **{"temperature": FIXED, "gamma": 0.5, **values})
    for network, constants in ((sac.actor, policy), (sac.critics, critics), (sac.target_critics, targets)):
        set_output(network, constants)
    return sac


PROBS = [0.5, 0.25, 0.25]
ENTROPY = -sum(p * math.log(p) for p in PROBS)


def make_discrete(**values: Any) -> SAC:
    """Probabilities 1/2, 1/4, 1/4. The lower values of the two critics are 1 1 3, those of the target critics 2 0 4."""
    critics = [[[1.0, 2.0, 3.0]], [[2.0, 1.0, 4.0]]]
    targets = [[[2.0, 1.0, 4.0]], [[3.0, 0.0, 5.0]]]
    return make_constant(CHOICE, [math.log(p) for p in PROBS], critics, targets, **values)


def make_continuous(**values: Any) -> SAC:
    """Mean 0, deviation 1 before tanh. Critics 3 and 5, target critics 2 and 7."""
    return make_constant(CONTINUOUS, [0.0] * 4, [[[3.0]], [[5.0]]], [[[2.0]], [[7.0]]], **values)


# ---------------------------------------------------------------- losses by hand


def target_of(sac: SAC, rewards: list[float], **flags: int) -> float:
    """The target of a transition with these rewards, for actions without noise. Flags name the row that has them."""
    batch = random_rows(sac.specs, 1, len(rewards) + 1)
    batch["reward"][0, 1:] = rewards
    for name, row in flags.items():
        batch[name][:, row] = True
    (microbatch,) = sac.make_microbatches(n_step_transitions(batch, sac.config.gamma), make_generator("u"))
    microbatch = microbatch._replace(next_noise=torch.zeros_like(microbatch.next_noise))
    set_output(sac.critics, [[[0.0] * sac.action_kind.critic_outputs]] * 2)  # then the TD error is the target
    return float(sac.critic_loss(microbatch).aux["td_errors"])


NEXT_VALUE = 2 - 0.5 * LOG_DENSITY
"""Of every state, for continuous actions without noise."""


def test_continuous_target() -> None:
    assert target_of(make_continuous(), [1.5]) == pytest.approx(1.5 + 0.5 * NEXT_VALUE)
    assert target_of(make_continuous(), [1.5], truncated=1) == pytest.approx(1.5 + 0.5 * NEXT_VALUE)
    assert target_of(make_continuous(), [1.5], terminated=1) == 1.5


def test_discrete_target() -> None:
    next_value = 0.5 * 2 + 0.25 * 0 + 0.25 * 4 + 0.5 * ENTROPY
    assert target_of(make_discrete(), [1.5]) == pytest.approx(1.5 + 0.5 * next_value)
    assert target_of(make_discrete(), [1.5], terminated=1) == 1.5


def test_target_of_several_steps() -> None:
    sac = make_continuous(n_step=3)
    assert sac.reads == {"update": Transitions(sac.config.batch_size, 3)}
    assert target_of(sac, [1.0, 2.0, 4.0]) == pytest.approx(1 + 1 + 1 + 0.125 * NEXT_VALUE)
    assert target_of(sac, [1.0, 2.0, 4.0], truncated=2) == pytest.approx(1 + 1 + 0.25 * NEXT_VALUE)
    assert target_of(sac, [1.0, 2.0, 4.0], terminated=2) == 1 + 1


def soft_loss(sac: SAC) -> tuple[torch.Tensor, torch.Tensor]:
    features = torch.ones(1, 3)
    return sac.action_kind.soft_loss(sac.actor(features), sac.critics, features, sac.temperature(), ZEROS)


@torch.no_grad()
def test_actor_losses() -> None:
    loss, entropy = soft_loss(make_continuous())
    assert float(loss) == pytest.approx(0.5 * LOG_DENSITY - 3)
    assert float(entropy) == pytest.approx(-LOG_DENSITY)
    loss, entropy = soft_loss(make_discrete())
    assert float(loss) == pytest.approx(-0.5 * ENTROPY - (0.5 * 1 + 0.25 * 1 + 0.25 * 3))
    assert float(entropy) == pytest.approx(ENTROPY)


def test_critic_losses() -> None:
    """The next state is terminal, so the target is the reward: 1."""
    for sac, values in ((make_continuous(), (3, 5)), (make_discrete(), (3, 4))):
        batch = random_rows(sac.specs, 4, 2)
        batch["reward"][:], batch["terminated"][:, 1] = 1, True
        if sac.specs.action.kind == "discrete":
            batch["action"][:] = 2
        metrics = sac.update(batch, Clock(), make_generator("u")).metrics
        assert float(metrics["critic_loss"]) == pytest.approx(0.5 * sum((value - 1) ** 2 for value in values))
        assert float(metrics["value"]) == pytest.approx(np.mean(values))


@pytest.mark.parametrize("specs", [CONTINUOUS, CHOICE], ids=["continuous", "discrete"])
def test_importance_weighs_the_critics_and_priorities_go_back(specs: Specs) -> None:
    """A sample with all the importance weight moves the critics as if it were alone. The policy ignores importance."""
    batch = random_rows(specs, 4, 2)
    assert make_sac(specs).update(batch, Clock(), make_generator("u")).write_back is None
    batch |= {"id": np.arange(10, 18).reshape(4, 2), "importance": np.ones((4, 2), np.float32)}
    one_only = {**batch, "importance": np.array([[0.0], [0.0], [4.0], [0.0]], np.float32).repeat(2, 1)}
    others = {**with_other(batch, np.s_[[0, 1, 3]]), "id": batch["id"], "importance": one_only["importance"]}
    critics = []
    for rows in (batch, one_only, others):
        sac = make_sac(specs)
        back = sac.update(rows, Clock(), make_generator("u")).write_back
        assert back is not None
        assert back.ids.tolist() == [10, 12, 14, 16]
        assert (back.columns["priority"] > 0).all()
        critics.append(sac.critic_optimizer.flat.detach().clone())
    assert torch.equal(critics[1], critics[2])
    assert not torch.equal(critics[0], critics[1])


def test_priority_is_the_mean_td_error_of_the_critics() -> None:
    """The target is the reward: 1. The critics' values are 3 and 5."""
    batch = random_rows(CONTINUOUS, 4, 2)
    batch["reward"][:], batch["terminated"][:, 1] = 1, True
    batch |= {"id": np.arange(8).reshape(4, 2), "importance": np.ones((4, 2), np.float32)}
    back = make_continuous().update(batch, Clock(), make_generator("u")).write_back
    assert back is not None
    assert back.columns["priority"] == pytest.approx(3.0)


def test_only_a_terminal_state_ends_the_value() -> None:
    ends = {}
    for flag in ("terminated", "truncated"):
        batch = random_rows(CONTINUOUS, 4, 2)
        batch[flag][:, 1] = True
        other = {**batch, "obs": batch["obs"] + np.array([[[0.0], [2.0]]], np.float32)}  # of next_obs
        both = [make_sac(), make_sac()]
        for sac, rows in zip(both, (batch, other), strict=True):
            sac.update(rows, Clock(), make_generator("u"))
        ends[flag] = torch.equal(parameters(both[0]), parameters(both[1]))
    assert ends == {"terminated": True, "truncated": False}


@pytest.mark.parametrize("specs", [CONTINUOUS, CHOICE, Specs(IMAGE, BOX)], ids=["continuous", "discrete", "image"])
def test_final_rows_change_nothing(specs: Specs) -> None:
    batch = random_rows(specs, 6, 2)
    batch["truncated"][4:, 0] = True
    sacs = [make_sac(specs), make_sac(specs)]
    for sac, rows in zip(sacs, (batch, with_other(batch, np.s_[4:])), strict=True):
        sac.update(rows, Clock(), make_generator("u"))
    assert torch.equal(parameters(sacs[0]), parameters(sacs[1]))
    third = make_sac(specs)
    third.update(with_other(batch, np.s_[:4]), Clock(), make_generator("u"))
    assert not torch.equal(parameters(sacs[0]), parameters(third))


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_critics(count: int) -> None:
    sac = make_sac(num_critics=count)
    assert sac.critics(torch.ones(4, 3), torch.ones(4, 2)).shape == (count, 4)
    sac.update(random_rows(CONTINUOUS, 4, 2), Clock(), make_generator("u"))


def test_target_critics_move_by_the_target_rate() -> None:
    sac = make_sac(target_rate=0.25, learning_rate=0.05)
    start = sac.target_flat.clone()
    sac.update(random_rows(CONTINUOUS, 8, 2), Clock(), make_generator("u"))
    critics = sac.critic_optimizer.flat.detach()
    assert not torch.equal(critics, start)
    torch.testing.assert_close(sac.target_flat, start + 0.25 * (critics - start))
    weights = torch.cat([parameter.flatten() for parameter in sac.target_critics.parameters()])
    assert torch.equal(weights, sac.target_flat)


# ---------------------------------------------------------------- temperature


@pytest.mark.parametrize(("specs", "expected"), [(CONTINUOUS, -2.0), (CHOICE, 0.7 * math.log(3))])
def test_the_default_target_entropy_depends_on_the_actions(specs: Specs, expected: float) -> None:
    assert make_sac(specs).temperature.target == pytest.approx(expected)
    other = make_sac(specs, temperature={"kind": "learned", "target_entropy": 0.25})
    assert other.temperature.target == 0.25
    target = make_sac(specs, temperature={"kind": "learned", "target_share": 0.9}).temperature.target
    assert target == pytest.approx(0.9 * math.log(3) if specs is CHOICE else expected)


@pytest.mark.parametrize(("target", "sign"), [(-50.0, -1), (50.0, 1)])
def test_the_temperature_falls_while_the_entropy_is_above_its_target(target: float, sign: int) -> None:
    sac = make_sac(temperature={"kind": "learned", "initial": 2.0, "target_entropy": target}, learning_rate=0.01)
    assert float(sac.temperature()) == pytest.approx(2)
    sac.update(random_rows(CONTINUOUS, 8, 2), Clock(), make_generator("u"))
    assert float(sac.temperature()) == pytest.approx(2 * math.exp(sign * 0.01), rel=1e-4)  # Adam's first step


def test_a_fixed_temperature_stays() -> None:
    sac = make_sac(temperature={"kind": "fixed", "value": 0.3})
    for seed in range(3):
        metrics = sac.update(random_rows(CONTINUOUS, 8, 2, seed), Clock(), make_generator(seed)).metrics
    assert float(metrics["temperature"]) == pytest.approx(0.3)
    assert list(sac.temperature.parameters()) == []


def make_bandit_batch(action: ActionSpec) -> Row:
    """Rewards: 0 1 2 for the three discrete actions, minus the squared norm for continuous ones."""
    batch = random_rows(Specs(VECTOR, action), 64, 2)
    batch["obs"][:] = 1
    actions = batch["action"][:, 0]
    batch["reward"][:, 1] = actions if action.kind == "discrete" else -10 * np.square(actions).sum(-1)
    return batch


@pytest.mark.parametrize(("action", "target"), [(DISCRETE, 0.6), (BOX, -1.0)], ids=["discrete", "continuous"])
def test_the_policy_reaches_its_target_entropy(action: ActionSpec, target: float) -> None:
    settings = {"learning_rate": 0.01, "gamma": 0.0, "units": (16,)}
    sac = make_sac(Specs(VECTOR, action), temperature={"kind": "learned", "target_entropy": target}, **settings)
    batch, rng = make_bandit_batch(action), make_generator("u")
    entropies = [float(sac.update(batch, Clock(), rng).metrics["entropy"]) for _ in range(600)]
    assert abs(np.mean(entropies[-100:]) - target) < 0.2 * abs(entropies[0] - target)
    best = sac.act(column_of(batch), {}, Clock(), rng, Mode.EVALUATE)[0][0]
    assert best == pytest.approx(2 if action.kind == "discrete" else [0, 0], abs=0.3)


# ---------------------------------------------------------------- images


def test_the_encoder_learns_from_the_critics_alone() -> None:
    sac = make_sac(Specs(IMAGE, BOX))
    encoder = {id(parameter) for parameter in sac.critics.encoder.parameters()}
    assert encoder
    assert encoder <= {id(parameter) for parameter in sac.critic_optimizer.parameters}
    assert encoder.isdisjoint(id(parameter) for parameter in sac.actor_optimizer.parameters)


def test_the_gradient_norm_of_the_encoder_is_a_metric() -> None:
    metrics = (
        make_sac(Specs(IMAGE, BOX)).update(random_rows(Specs(IMAGE, BOX), 4, 2), Clock(), make_generator("u")).metrics
    )
    assert 0 < metrics["grad_norm_trunk"] < metrics["grad_norm_critic"]
    metrics = make_sac(CHOICE).update(random_rows(CHOICE, 4, 2), Clock(), make_generator("u")).metrics
    assert "grad_norm_critic" in metrics
    assert "grad_norm_trunk" not in metrics  # vectors need no encoder


@pytest.mark.parametrize(("sides", "shift"), [((84, 84), 4), ((64, 96), 3), ((40, 40), 2), ((11, 11), 1), ((7, 7), 0)])
def test_images_are_shifted_in_proportion_to_their_size(sides: tuple[int, int], shift: int) -> None:
    image = ObservationSpec((*sides, 3), "uint8", "image")
    assert make_sac(CONTINUOUS)._max_shift(image) == shift
    assert make_sac(CONTINUOUS, image_shift=2)._max_shift(image) == 2


def test_images_are_shifted_in_updates_only() -> None:
    specs = Specs(IMAGE, BOX)
    batch = random_rows(specs, 4, 2)
    ends = []
    for shift, stream in ((0, "a"), (4, "a"), (4, "a"), (4, "b")):
        sac = make_sac(specs, image_shift=shift)
        shifted = sac.augment({"obs": torch.as_tensor(batch["obs"][:, 0])}, make_generator(stream))
        assert shifted["obs"].equal(torch.as_tensor(batch["obs"][:, 0])) == (shift == 0)
        sac.update(batch, Clock(), make_generator(stream))
        ends.append(parameters(sac))
    assert torch.equal(ends[1], ends[2])
    assert not torch.equal(ends[0], ends[1])
    tiny = make_sac(Specs({"obs": ObservationSpec((7, 7, 3), "uint8", "image")}, BOX))
    picture = torch.as_tensor(batch["obs"][:, 0, :7, :7])
    assert tiny.augment({"obs": picture}, make_generator("a"))["obs"].equal(picture)
    sac = make_sac(specs)
    actions = [sac.act(column_of(batch), {}, Clock(), make_generator(n), Mode.EVALUATE)[0] for n in range(2)]
    assert np.array_equal(*actions)


# ---------------------------------------------------------------- spaces, acting, state


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("action", [BOX, DISCRETE], ids=["continuous", "discrete"])
def test_every_space_acts_and_learns(name: str, action: ActionSpec) -> None:
    specs = Specs(OBSERVATIONS[name], action)
    sac = make_sac(specs)
    before = parameters(sac)
    for mode in Mode:
        chosen, carry, extras = sac.act(
            column_of(random_rows(specs, 3, 1)), sac.initial_carry(3), Clock(), make_generator("act"), mode
        )  # fmt: skip
        assert (chosen.shape, chosen.dtype) == ((3, *action.shape), action.dtype)
        assert (carry, extras) == ({}, {})
    update = sac.update(random_rows(specs, 5, 2), Clock(), make_generator("update"))
    assert update.count == 1
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert not torch.equal(parameters(sac), before)


@pytest.mark.parametrize("specs", [CONTINUOUS, CHOICE])
def test_losses_on_held_out_data_are_those_of_an_update(specs: Specs) -> None:
    """Those of the critics. In an update the actor's loss is computed after the step of the critics."""
    sac = make_sac(specs)
    batch, before = random_rows(specs, 6, 2), parameters(sac)
    held_out = sac.held_out_metrics("update", batch, Clock(), make_generator("test noise"))
    assert torch.equal(parameters(sac), before)
    update = sac.update(batch, Clock(), make_generator("test noise")).metrics
    for name in ("critic_loss", "value"):
        assert held_out[name] == pytest.approx(float(update[name]), rel=1e-5)
    assert {"actor_loss", "entropy"} < held_out.keys()


def test_a_policy_without_layers_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1"):
        make_sac(units=())


def test_actions_of_any_shape_are_within_their_bounds() -> None:
    matrix = ActionSpec("continuous", (2, 2), "float32", low=(-3.0,) * 4, high=(3.0,) * 4)
    sac = make_sac(Specs(VECTOR, matrix))
    set_output(sac.actor, [5.0] * 4 + [2.0] * 4)
    action = sac.act(column_of(random_rows(sac.specs, 200, 1)), {}, Clock(), make_generator("a"), Mode.COLLECT)[0]
    assert action.shape == (200, 2, 2)
    assert np.abs(action).max() <= 1
    assert action.min() < 0 < action.max()
    sac.update(random_rows(sac.specs, 4, 2), Clock(), make_generator("u"))


@pytest.mark.parametrize("specs", [CONTINUOUS, CHOICE], ids=["continuous", "discrete"])
def test_observing_advances_the_stream_as_acting_does(specs: Specs) -> None:
    ends = []
    for mode in (Mode.COLLECT, Mode.OBSERVE):
        rng, rows = make_generator("act"), column_of(random_rows(specs, 30, 1))
        action, carry, extras = make_sac(specs).act(rows, {}, Clock(), rng, mode)
        assert (action.shape, carry, extras) == ((30, *specs.action.shape), {}, {})
        ends.append(rng.bit_generator.state)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("specs", [CONTINUOUS, CHOICE], ids=["continuous", "discrete"])
def test_evaluation_is_greedy_and_draws_nothing(specs: Specs) -> None:
    sac, rng = make_sac(specs), make_generator("act")
    state = rng.bit_generator.state
    rows = column_of(random_rows(specs, 30, 1))
    first, _, _ = sac.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    second, _, _ = sac.act(rows, {}, Clock(), rng, Mode.EVALUATE)
    assert np.array_equal(first, second)
    assert rng.bit_generator.state == state
    assert not np.array_equal(first, sac.act(rows, {}, Clock(), rng, Mode.COLLECT)[0])


def test_actions_are_sampled_from_the_policy() -> None:
    sac = make_discrete()
    rows = column_of(random_rows(CHOICE, 8000, 1))
    action, _, _ = sac.act(rows, {}, Clock(), make_generator("act"), Mode.COLLECT)
    assert np.bincount(action) / 8000 == pytest.approx(PROBS, abs=0.025)


def test_a_phase_may_change_what_is_read() -> None:
    sac = make_sac(batch_size=5)
    sac.config = sac.config.model_copy(update={"batch_size": 7})
    assert sac.reads == {"update": Transitions(7)}


@pytest.mark.parametrize(
    ("specs", "values"),
    [(CONTINUOUS, {}), (CHOICE, {"temperature": FIXED}), (Specs(IMAGE, BOX), {"num_critics": 3})],
    ids=["continuous", "discrete", "image"],
)
def test_state_continues_exactly(specs: Specs, values: dict[str, Any], tmp_path: Path) -> None:
    """Gradients are not part of the state, and must not matter."""
    one, two = make_sac(specs, **values), make_sac(specs, **values)
    for seed in range(3):
        one.update(random_rows(specs, 6, 2, seed), Clock(), make_generator(seed))
    write_tree(tmp_path / "state", one.state())
    two.load_state(read_tree(tmp_path / "state"))
    for sac in (one, two):
        sac.update(random_rows(specs, 6, 2, 7), Clock(), make_generator("next"))
    assert torch.equal(parameters(one), parameters(two))
    assert torch.equal(one.target_flat, two.target_flat)


def test_a_loaded_policy_acts_the_same() -> None:
    specs = Specs(IMAGE, DISCRETE)
    one, two = make_sac(specs), make_sac(specs)
    one.update(random_rows(specs, 4, 2), Clock(), make_generator("u"))
    two.load_policy_state(one.policy_state())
    rows = column_of(random_rows(specs, 8, 1))
    actions = [sac.act(rows, {}, Clock(), make_generator("a"), Mode.COLLECT)[0] for sac in (one, two)]
    assert np.array_equal(*actions)


def test_a_loaded_encoder_is_that_of_the_target_critics_too() -> None:
    specs = Specs(IMAGE, DISCRETE)
    one, two = make_sac(specs), make_sac(specs)
    one.update(random_rows(specs, 4, 2), Clock(), make_generator("u"))
    heads = [value.clone() for name, value in two.target_critics.state_dict().items() if not name.startswith("encoder")]
    two.load_policy_state(one.policy_state())
    encoder = {name: value for name, value in two.target_critics.state_dict().items() if name.startswith("encoder")}
    assert encoder
    assert all(torch.equal(value, one.critics.state_dict()[name]) for name, value in encoder.items())
    assert any(not torch.equal(value, one.target_critics.state_dict()[name]) for name, value in encoder.items())
    rest = [value for name, value in two.target_critics.state_dict().items() if not name.startswith("encoder")]
    assert all(torch.equal(before, after) for before, after in zip(heads, rest, strict=True))
