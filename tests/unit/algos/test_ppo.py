"""PPO: updates on small batches, every kind of space, target_kl, schedules and state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from reverie.algos.ppo import PPO, PPOConfig
from reverie.backend import DEFAULT, Backend
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Clock, Mode, Row
from reverie.nets.encoders import MLP
from reverie.nets.heads import StateDependentHead

VECTOR = {"obs": ObservationSpec((3,), "float32", "vector")}
MIXED = {
    "obs/image": ObservationSpec((40, 40, 3), "uint8", "image"),
    "obs/vector": ObservationSpec((2,), "float32", "vector"),
    "obs/index": ObservationSpec((), "int64", "discrete", (4,)),
}
DISCRETE = ActionSpec("discrete", (), "int64", (3,))
BOX = ActionSpec("continuous", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
ACTIONS = {
    "discrete": DISCRETE,
    "continuous": BOX,
    "multi_discrete": ActionSpec("multi_discrete", (2,), "int64", (3, 4)),
    "multi_binary": ActionSpec("multi_binary", (3,), "int64", (2, 2, 2)),
}


def make_ppo(specs: Specs, backend: Backend = DEFAULT, **values: Any) -> PPO:
    network = {"kind": "mlp", "units": (8,)}
    config = PPOConfig.model_validate({"network": network, "batch_size": 16, "epochs": 2, **values})
    return PPO(config, specs, make_generator("test weights"), backend)


def make_batch(specs: Specs, envs: int = 3, steps: int = 12, seed: int = 0) -> Row:
    """Random rows with two episode ends in each env: one terminated, one truncated."""
    rng = make_generator(seed, "batch")
    shape = (envs, steps + 1)
    batch: Row = {}
    for key, spec in specs.observations.items():
        if spec.kind == "vector":
            batch[key] = rng.standard_normal((*shape, *spec.shape), dtype=np.float32)
        else:
            top = 256 if spec.kind == "image" else spec.classes[0]
            batch[key] = rng.integers(0, top, (*shape, *spec.shape)).astype(spec.dtype)
    batch["action"] = specs.action.sample(rng, envs * (steps + 1)).reshape(*shape, *specs.action.shape)
    batch["reward"] = rng.standard_normal(shape, dtype=np.float32)
    flags = {name: np.zeros(shape, bool) for name in ("is_first", "terminated", "truncated")}
    flags["terminated"][:, 4] = flags["truncated"][:, 8] = True
    flags["is_first"][:, [0, 5, 9]] = True
    return batch | flags


def row_of(batch: Row, column: int = 0) -> Row:
    return {key: value[:, column] for key, value in batch.items()}


def parameters(ppo: PPO) -> torch.Tensor:
    return ppo.optimizer.flat.detach().clone()


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("observations", [VECTOR, MIXED], ids=["vector", "mixed"])
@pytest.mark.parametrize("shared", [False, True])
def test_every_space_acts_and_learns(kind: str, observations: dict[str, ObservationSpec], shared: bool) -> None:
    specs = Specs(observations, ACTIONS[kind])
    network = {"kind": "nature" if observations is MIXED else "mlp", "units": (8,)}
    ppo = make_ppo(specs, network=network, shared_trunk=shared, entropy_weight=0.01, value_clip=0.2)
    batch, before = make_batch(specs), parameters(ppo)
    for mode in Mode:
        action, _, extras = ppo.act(row_of(batch), ppo.initial_carry(3), Clock(), make_generator("act"), mode)
        assert action.shape == (3, *specs.action.shape)
        assert action.dtype == specs.action.dtype
        assert extras == {}
    update = ppo.update(batch, Clock(), make_generator("update"))
    assert update.count == 2 * 3  # epochs times minibatches: 36 rows in batches of 16
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert not torch.equal(parameters(ppo), before)


def test_actions_of_final_rows_change_nothing() -> None:
    specs = Specs(VECTOR, DISCRETE)
    batch = make_batch(specs)
    final = batch["terminated"] | batch["truncated"]
    other = {**batch, "action": np.where(final, (batch["action"] + 1) % 3, batch["action"])}
    one, two = make_ppo(specs), make_ppo(specs)
    one.update(batch, Clock(), make_generator("update"))
    two.update(other, Clock(), make_generator("update"))
    assert torch.equal(parameters(one), parameters(two))
    three = make_ppo(specs)
    changed = {**batch, "action": np.where(final, batch["action"], (batch["action"] + 1) % 3)}
    three.update(changed, Clock(), make_generator("update"))
    assert not torch.equal(parameters(one), parameters(three))


def test_values_bootstrap_through_truncation_and_not_through_termination() -> None:
    specs = Specs(VECTOR, DISCRETE)
    batch = make_batch(specs)
    targets = []
    for column in (None, 4, 8):
        observation = batch["obs"].copy()
        if column is not None:
            observation[:, column] += 5
        with torch.no_grad():
            data = make_ppo(specs).evaluate_rollout(
                {k: torch.as_tensor(v) for k, v in {**batch, "obs": observation}.items()}
            )
        weight = data["weights"] > 0
        targets.append(data["target"][weight])
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[0], targets[2])


def test_the_ratio_starts_at_one() -> None:
    specs = Specs(VECTOR, BOX)
    ppo = make_ppo(specs, epochs=1, batch_size=1.0)
    metrics = ppo.update(make_batch(specs), Clock(), make_generator("update")).metrics
    assert float(metrics["kl"]) == pytest.approx(0, abs=1e-6)
    assert float(metrics["clip_fraction"]) == 0


@pytest.mark.parametrize("rows", [64, 64.0])
def test_batch_size_above_one_is_rows(rows: float) -> None:
    size = PPOConfig(batch_size=rows).batch_size
    assert (size, type(size)) == (64, int)
    assert isinstance(PPOConfig(batch_size=1.0).batch_size, float)


@pytest.mark.parametrize("wrong", [1.5, 64.5, float("inf"), float("nan"), 0.0, -0.5])
def test_batch_size_is_rows_or_a_fraction(wrong: float) -> None:
    with pytest.raises(ValidationError):
        PPOConfig(batch_size=wrong)


@pytest.mark.parametrize("field", ["learning_rate", "clip"])
def test_negative_rates_are_refused(field: str) -> None:
    with pytest.raises(ValidationError, match="must not be negative"):
        PPOConfig.model_validate({field: -0.1})


def test_batch_size_as_a_fraction() -> None:
    specs = Specs(VECTOR, DISCRETE)
    ppo = make_ppo(specs, epochs=1, batch_size=0.25)
    assert ppo.update(make_batch(specs), Clock(), make_generator("update")).count == 4


@pytest.mark.parametrize(("engine", "microbatches"), [("numpy", 1), ("torch", 1), ("torch", 2)])
def test_target_kl_stops_before_the_minibatch_that_is_too_far(engine: str, microbatches: int) -> None:
    """On the first minibatch the policy is still the old one. After one big step it is far from it on the second."""
    backend = Backend(engine=engine, microbatches=microbatches)
    specs = Specs(VECTOR, DISCRETE)
    patient = make_ppo(specs, backend, learning_rate=0.5, target_kl=1e3)
    hasty = make_ppo(specs, backend, learning_rate=0.5, target_kl=1e-2)
    assert patient.update(make_batch(specs), Clock(), make_generator("u")).count == 6
    update = hasty.update(make_batch(specs), Clock(), make_generator("u"))
    assert update.count == hasty.optimizer.steps == 1
    assert float(update.metrics["kl"]) > 0.5 * 1.5e-2  # the mean of two minibatches, of which the first has none
    assert all(np.isfinite(float(value)) for value in update.metrics.values())


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_target_kl_may_refuse_the_first_minibatch(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = Specs(VECTOR, DISCRETE)
    ppo = make_ppo(specs, Backend(engine=engine), target_kl=1e-9)
    monkeypatch.setattr("reverie.agents.ppo_engine.StepSettings.accepts", lambda settings, metrics: False)
    before = parameters(ppo)
    update = ppo.update(make_batch(specs), Clock(), make_generator("u"))
    assert update.count == ppo.optimizer.steps == 0
    assert torch.equal(parameters(ppo), before)
    assert {"policy_loss", "value_loss", "loss", "entropy", "kl", "explained_variance"} <= update.metrics.keys()
    assert not [name for name in update.metrics if name.startswith("grad_norm")], "there is no gradient"
    assert all(np.isfinite(float(value)) for value in update.metrics.values())


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_target_kl_leaves_nan_to_the_check_of_metrics(engine: str) -> None:
    specs = Specs(VECTOR, DISCRETE)
    ppo = make_ppo(specs, Backend(engine=engine), target_kl=1e-2)
    batch = make_batch(specs)
    update = ppo.update({**batch, "obs": batch["obs"] * np.float32("nan")}, Clock(), make_generator("u"))
    assert np.isnan(float(update.metrics["policy_loss"]))


def test_schedules_follow_the_clock() -> None:
    specs = Specs(VECTOR, DISCRETE)
    falling = {"start": 1e-2, "end": 0.0, "from": 0, "to": 100}
    ppo = make_ppo(specs, learning_rate=falling)
    before = parameters(ppo)
    metrics = ppo.update(make_batch(specs), Clock(env_steps=100), make_generator("u")).metrics
    assert metrics["learning_rate"] == 0
    assert torch.equal(parameters(ppo), before)


def test_evaluation_is_greedy_and_draws_nothing() -> None:
    specs = Specs(VECTOR, BOX)
    ppo, rng = make_ppo(specs), make_generator("act")
    state = rng.bit_generator.state
    row = row_of(make_batch(specs))
    first, _, _ = ppo.act(row, {}, Clock(), rng, Mode.EVALUATE)
    second, _, _ = ppo.act(row, {}, Clock(), rng, Mode.EVALUATE)
    assert np.array_equal(first, second)
    assert rng.bit_generator.state == state
    drawn, _, _ = ppo.act(row, {}, Clock(), rng, Mode.COLLECT)
    assert not np.array_equal(first, drawn)


def test_smooth_noise_keeps_its_direction_for_some_steps() -> None:
    specs = Specs(VECTOR, BOX)
    ppo = make_ppo(specs, state_dependent_noise=True, noise_steps=3)
    assert isinstance(ppo.model.action_head, StateDependentHead)
    row, carry, rng = row_of(make_batch(specs)), ppo.initial_carry(3), make_generator("act")
    actions = []
    for updates in (0, 0, 0, 0, 0, 1):
        action, carry, _ = ppo.act(row, carry, Clock(updates=updates), rng, Mode.COLLECT)
        actions.append(action)
    same = [np.array_equal(a, b) for a, b in itertools.pairwise(actions)]
    assert same == [True, True, False, True, False]  # new after three steps, and for a new rollout
    ppo.update(make_batch(specs), Clock(), make_generator("update"))


def test_one_seed_one_network() -> None:
    specs = Specs(VECTOR, DISCRETE)
    config = PPOConfig(network=MLP.Config())
    networks = [parameters(PPO(config, specs, make_generator(seed))) for seed in (1, 1, 2)]
    assert torch.equal(networks[0], networks[1])
    assert not torch.equal(networks[0], networks[2])


def test_state_continues_exactly() -> None:
    specs = Specs(VECTOR, DISCRETE)
    one, two = make_ppo(specs), make_ppo(specs)
    one.update(make_batch(specs), Clock(), make_generator("a"))
    two.load_state(one.state())
    for ppo in (one, two):
        ppo.update(make_batch(specs, seed=1), Clock(), make_generator("b"))
    assert torch.equal(parameters(one), parameters(two))
