"""Recurrent DQN and SAC: learning from sequences computes the same features as acting row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.api import make_config
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.traits import is_recurrent
from reverie.core.types import Clock, Mode, Row, observation_keys
from tests.unit.algos.batches import BOX, DISCRETE, IMAGE, VECTOR, column_of, random_rows

RECURRENT = [kind for kind in registry.kinds("network") if is_recurrent(kind)]
SETTINGS: dict[str, dict[str, Any]] = {"transformer": {"heads": 2, "context": 5}}
FORMS = {"dqn": DISCRETE, "sac": BOX, "discrete sac": DISCRETE}
LENGTH, BURN_IN = 14, 4
ENDS, STARTS = (6, 10), (7, 11)
every_form = pytest.mark.parametrize("form", FORMS)
every_network = pytest.mark.parametrize("kind", RECURRENT)


def make_agent(form: str, kind: str = "gru", observations: Any = VECTOR, **values: Any) -> Any:
    algorithm = registry.load("algorithm", form.split()[-1])
    network = {"kind": kind, "units": 8, "encoder": {"kind": "auto"}, **SETTINGS.get(kind, {})}
    settings = {"network": network, "sequence": {"length": LENGTH, "burn_in": BURN_IN}, "learning_rate": 0.01}
    settings |= {"units": (8,)} if form != "dqn" else {}
    config = algorithm.Config.model_validate({**settings, **values})
    return algorithm(config, Specs(observations, FORMS[form]), make_generator("test weights"))


def make_windows(agent: Any, count: int = 5, seed: int = 0) -> Row:
    """Sequences that start in mid-episode. The first end is a termination, the second one a truncation."""
    batch = random_rows(agent.specs, count, LENGTH, seed)
    batch["terminated"][:, ENDS[0]] = batch["truncated"][:, ENDS[1]] = True
    batch["is_first"][:, STARTS] = True
    return batch


def trunk_of(agent: Any) -> Any:
    return agent.online.trunk if hasattr(agent, "online") else agent.critics.encoder.network


def weights_after(agent: Any, batch: Row, updates: int = 1) -> torch.Tensor:
    for step in range(updates):
        agent.update(batch, Clock(updates=step), make_generator("update"))
    names = ("optimizer", "critic_optimizer", "actor_optimizer")
    return torch.cat([getattr(agent, name).flat.detach() for name in names if hasattr(agent, name)]).clone()


def learning_features(agent: Any, batch: Row, **columns: Any) -> torch.Tensor:
    """Features (B, L, F) that learning computes for the rows after the burn-in."""
    keys = (*observation_keys(batch), "is_first")
    windows = {key: torch.as_tensor(batch[key]) for key in keys} | columns
    found: torch.Tensor = trunk_of(agent)(windows).unflatten(0, (len(batch["is_first"]), -1))
    return found


def acting_features(agent: Any, batch: Row, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> torch.Tensor:
    """Features (B, T, F) that ``act`` computes for the same rows, one by one."""
    acted: list[torch.Tensor] = []
    network = trunk_of(agent).network
    step = network.step

    def spy(*arguments: Any) -> Any:
        features, hidden = step(*arguments)
        acted.append(features.clone())
        return features, hidden

    monkeypatch.setattr(network, "step", spy)
    carry = agent.initial_carry(len(batch["is_first"]))
    for column in range(LENGTH):
        now = {**column_of(batch, column), "previous_action": agent.specs.action.zeros(len(batch["is_first"]))}
        _, carry, extras = agent.act(now, carry, Clock(), make_generator("act", column), mode)
        assert extras == {}  # nothing is stored with rows
        assert all(isinstance(value, np.ndarray) for value in carry.values())
    return torch.stack(acted, 1)


@every_form
@every_network
def test_learning_and_acting_compute_the_same_features(form: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(form, kind)
    batch = make_windows(agent)
    for mode in Mode:
        acted = acting_features(agent, batch, monkeypatch, mode)
        with torch.no_grad():
            torch.testing.assert_close(learning_features(agent, batch), acted[:, BURN_IN:-1], rtol=1e-4, atol=1e-5)
            column = torch.tensor([[1, 3, 9]] * 5)
            reached = learning_features(agent, batch, column=column)
        torch.testing.assert_close(reached, acted[:, [BURN_IN + 1, BURN_IN + 3, BURN_IN + 9]], rtol=1e-4, atol=1e-5)
        monkeypatch.undo()


@every_form
@every_network
def test_first_row_of_an_episode_ignores_earlier_rows(form: str, kind: str) -> None:
    agent = make_agent(form, kind)
    batch = make_windows(agent)
    before = {**batch, "obs": batch["obs"].copy()}
    before["obs"][:, : STARTS[0]] += 1
    with torch.no_grad():
        one, two = learning_features(agent, batch), learning_features(agent, before)
    assert torch.equal(one[:, STARTS[0] - BURN_IN :], two[:, STARTS[0] - BURN_IN :])
    assert not torch.equal(one[:, : STARTS[0] - BURN_IN], two[:, : STARTS[0] - BURN_IN])

    now, empty = column_of(batch), agent.initial_carry(5)
    used = agent.act(now, empty, Clock(), make_generator("act"), Mode.EVALUATE)[1]
    now["is_first"] = np.array([True] * 4 + [False])
    carries = [agent.act(now, start, Clock(), make_generator("act"), Mode.EVALUATE)[1] for start in (empty, used)]
    for state in ("hidden", "cell", "age"):
        if state in empty:
            np.testing.assert_array_equal(carries[0][state][:4], carries[1][state][:4])
            assert not np.array_equal(carries[0][state][4], carries[1][state][4])


@every_form
@every_network
def test_burn_in_rows_only_fill_the_hidden_state(form: str, kind: str) -> None:
    agent = make_agent(form, kind)
    batch = make_windows(agent)
    observation = torch.as_tensor(batch["obs"]).requires_grad_()
    learning_features(agent, {**batch, "obs": observation}).square().sum().backward()
    assert observation.grad is not None
    assert not observation.grad[:, :BURN_IN].any()
    assert observation.grad[:, BURN_IN : STARTS[0]].any(-1).all()

    plain = weights_after(make_agent(form, kind), batch)
    other = {**batch, "action": batch["action"].copy(), "reward": batch["reward"].copy()}
    other["action"][:, :BURN_IN] = agent.specs.action.zeros(5 * BURN_IN).reshape(5, BURN_IN, *agent.specs.action.shape)
    other["reward"][:, : BURN_IN + 1] += 1
    assert torch.equal(weights_after(make_agent(form, kind), other), plain)
    other["reward"][:, BURN_IN + 1] += 1
    assert not torch.equal(weights_after(make_agent(form, kind), other), plain)
    observed = {**batch, "obs": batch["obs"].copy()}
    observed["obs"][:, BURN_IN - 1] += 1
    assert not torch.equal(weights_after(make_agent(form, kind), observed), plain)


@every_form
@every_network
def test_final_rows_change_no_gradient(form: str, kind: str) -> None:
    batch = make_windows(make_agent(form, kind))
    batches = {
        name: {key: value.copy() for key, value in batch.items()} for name in ("action", "terminal", "truncated")
    }
    batches["action"]["action"][:, ENDS] = batch["action"][:, ENDS][::-1]
    batches["action"]["action"][:, -1] = batch["action"][:, 0]
    batches["terminal"]["obs"][:, ENDS[0]] += 5
    batches["truncated"]["obs"][:, ENDS[1]] += 5
    plain = weights_after(make_agent(form, kind), batch)
    after = {name: weights_after(make_agent(form, kind), rows) for name, rows in batches.items()}
    assert torch.equal(after["action"], plain)
    assert torch.equal(after["terminal"], plain)
    assert not torch.equal(after["truncated"], plain)  # values bootstrap through truncation


@every_form
def test_rows_without_a_target_have_weight_zero(form: str) -> None:
    """The last rows have fewer than three steps left, so only the final observation is used."""
    batch = random_rows(make_agent(form).specs, 4, LENGTH)
    other = {**batch, "reward": batch["reward"].copy(), "action": batch["action"].copy()}
    other["action"][:, -3:-1] = batch["action"][:, :2]
    plain, changed = (weights_after(make_agent(form, n_step=3), rows) for rows in (batch, other))
    assert torch.equal(plain, changed)
    other["action"][:, -4] = batch["action"][:, 0] + 1 if form == "sac" else (batch["action"][:, -4] + 1) % 3
    assert not torch.equal(plain, weights_after(make_agent(form, n_step=3), other))


def test_two_step_target_by_hand() -> None:
    """In sequences of three rows only the first has a two-step target, from the features of the third."""
    agent = make_agent("dqn", sequence={"length": 3, "burn_in": 0}, n_step=2, gamma=0.7)
    batch = random_rows(agent.specs, 6, 3)
    hidden = {key: torch.as_tensor(value) for key, value in agent.initial_carry(6).items()}
    values = []
    with torch.no_grad():
        for row in range(3):
            observation = {"obs": torch.as_tensor(batch["obs"][:, row])}
            features, hidden = trunk_of(agent).network.step(observation, torch.zeros(6, dtype=torch.bool), hidden)
            values.append(agent.online.head(features).squeeze(-1).numpy())
    target = batch["reward"][:, 1] + 0.7 * batch["reward"][:, 2] + 0.49 * values[2].max(1)
    error = np.abs(values[0][np.arange(6), batch["action"][:, 0]] - target)
    expected = np.where(error < 1, error**2 / 2, error - 0.5).mean()
    found = agent.update(batch, Clock(), make_generator("update")).metrics["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-5)


RAINBOW = [
    {"head": {"kind": "categorical", "atoms": 11}, "dueling": True, "noisy": True, "n_step": 3, "double": True},
    {"head": {"kind": "quantile", "quantiles": 5, "hidden_units": 8}, "dueling": True, "double": False},
]


@pytest.mark.parametrize("parts", RAINBOW)
def test_rainbow_components_learn_with_recurrent_networks(parts: dict[str, Any]) -> None:
    agent = make_agent("dqn", **parts, target_rate=1.0, target_every=20)
    batch = make_windows(agent)
    first, last = (
        float(agent.update(batch, Clock(updates=step), make_generator("update")).metrics["loss"])
        for step in (0, 1)
    )  # fmt: skip
    assert np.isfinite([first, last]).all()
    weights_after(agent, batch, updates=30)
    assert agent.held_out_metrics("update", batch, Clock(), make_generator("held out"))["loss"] < first


@every_form
def test_recurrent_agents_learn_from_images_and_report_held_out_loss(form: str) -> None:
    settings = {"network": {"kind": "gru", "units": 8, "encoder": {"kind": "impala", "units": [8], "channels": [4]}}}
    agent = make_agent(form, observations=IMAGE, **settings)
    batch = make_windows(agent, count=2)
    before = weights_after(agent, batch)
    assert not torch.equal(weights_after(agent, batch), before)
    metrics = agent.held_out_metrics("update", batch, Clock(), make_generator("held out"))
    assert np.isfinite(list(metrics.values())).all()


@every_form
def test_priority_mixes_largest_and_mean_td_error_of_a_sequence(form: str) -> None:
    """0.9 of the largest TD error plus 0.1 of the mean. Rows with weight 0 are left out."""
    agent = make_agent(form)
    batch = {**make_windows(agent), "importance": np.full((5, LENGTH), 0.5, np.float32)}
    batch["id"] = 1000 + np.arange(5 * LENGTH).reshape(5, LENGTH)
    plain = weights_after(make_agent(form), {key: batch[key] for key in batch if key != "importance"})
    update = agent.update(batch, Clock(), make_generator("update"))
    assert update.write_back is not None
    assert update.write_back.ids.tolist() == batch["id"][:, 0].tolist()
    assert update.write_back.columns["priority"].shape == (5,)
    assert (update.write_back.columns["priority"] > 0).all()
    transitions = agent.replay.transitions(batch, 0.9, 1)
    td_errors = np.where(transitions.weights > 0, 1.0, 100.0)
    first = np.flatnonzero(transitions.weights[0])[0]
    td_errors[0, first] = 10
    count = (transitions.weights[0] > 0).sum()
    expected = [0.9 * 10 + 0.1 * (count + 9) / count, 1, 1, 1, 1]
    np.testing.assert_allclose(agent.replay.priority(transitions, td_errors.ravel()), expected)
    assert not np.array_equal(weights_after(make_agent(form), batch), plain)


# ---------------------------------------------------------------- configs


@pytest.mark.parametrize("spec", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_reads_depend_on_the_network(spec: str) -> None:
    for network, read in (("gru", Window(7, 24, context=8)), ("mlp", Transitions(7, 1))):
        config = make_config(spec, [f"algorithm.network={network}", "algorithm.batch_size=7", "env.vector=sync"])
        algorithm = registry.load("algorithm", config.algorithm.kind)
        specs = Specs(VECTOR, DISCRETE)
        assert algorithm(config.algorithm, specs, make_generator("w")).reads == {"update": read}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algorithm.sequence={length: 8, burn_in: 8}"], r"burn_in \(8\) must be below length \(8\)"),
        (["algorithm.n_step=24"], r"n_step=24 needs more than the 24 .* set algorithm\.sequence\.length=33 or more"),
        (["buffers.main.capacity=50", "buffers.main.min_rows=5", "env.num_envs=2"],
         r"buffers\.main\.capacity.*32 rows.*Set buffers\.main\.capacity=64"),
        (["phases.learn.overrides={algorithm.n_step: 30}"], r"n_step=30 needs more than the 24"),
        (["algorithm.network.encoder=lstm"], r"cannot be the encoder of another"),
    ],
)  # fmt: skip
def test_invalid_sequence_settings_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config("CartPole-v1:dqn", ["algorithm.network=gru", *words])
    if "encoder" not in words[0] and "burn_in" not in words[0]:
        make_config("CartPole-v1:dqn", words)  # networks without a hidden state do not read sequences
