"""Every algorithm learns with every network it supports, and refuses the others with a clear message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dqn import DQN
from reverie.api import make_config
from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, Specs
from reverie.core.traits import is_recurrent
from reverie.core.types import Clock, Mode, Row
from reverie.nets.recurrent import RecurrentConfig, RecurrentNetwork
from tests.unit.algos.batches import BOX, DISCRETE, IMAGE, VECTOR, column_of, random_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "networks.md"
NETWORKS = [kind for kind in registry.kinds("network") if kind != "auto"]
ALGORITHMS = [
    kind for kind in registry.kinds("algorithm")
    if "network" in registry.load("algorithm", kind).Config.model_fields
]  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "gru": {"units": 8, "encoder": {"kind": "impala", "units": [8], "channels": [4]}},
    "lstm": {"units": 8, "encoder": {"kind": "mlp", "units": [8]}},
    "transformer": {"units": 8, "heads": 2, "context": 4, "encoder": {"kind": "mlp", "units": [8]}},
    "impala": {"units": [8], "channels": [4]},
}
INITIALISERS = ("orthogonal", "xavier", "kaiming", "torch")


def settings_of(kind: str) -> dict[str, Any]:
    return {"kind": kind, **SMALL.get(kind, {"units": [8]})}


def make_agent(algorithm: str, network: dict[str, Any], specs: Specs, **settings: Any) -> Any:
    made = registry.load("algorithm", algorithm)
    if "sequence" in made.Config.model_fields:
        settings = {"sequence": {"length": 7, "burn_in": 2}, **settings}
    config = made.Config.model_validate({"network": network, **settings})
    return made(config, specs, make_generator("test weights"))


def rows_for(algorithm: str, specs: Specs, seed: int, recurrent: bool = False) -> Row:
    """What the hook of an algorithm reads: transitions, sequences, a rollout, or episodes of which one is shorter."""
    rows = random_rows(specs, 4, 2 if algorithm in ("dqn", "sac") and not recurrent else 7, seed)
    if algorithm == "reinforce":
        rows["is_first"][:, 0] = rows["terminated"][0, 4] = rows["terminated"][1:, 6] = True
        rows["valid"] = np.ones((4, 7), bool)
        rows["valid"][0, 5:] = False
    return rows


def weights_of(agent: Any) -> torch.Tensor:
    optimizers = [getattr(agent, name, None) for name in ("optimizer", "critic_optimizer", "actor_optimizer")]
    return torch.cat([optimizer.flat.detach() for optimizer in optimizers if optimizer is not None]).clone()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_algorithm_learns_with_every_network(algorithm: str, network: str) -> None:
    specs = Specs(VECTOR if network in ("mlp", "lstm", "transformer") else IMAGE, DISCRETE)
    agent = make_agent(algorithm, settings_of(network), specs)
    before, carry = weights_of(agent), agent.initial_carry(4)
    for step in range(3):
        rows = rows_for(algorithm, specs, step, is_recurrent(network))
        for column in range(2):
            now = {**column_of(rows, column), "previous_action": specs.action.zeros(4)}
            mode = list(Mode)[step % 2]
            action, carry, _ = agent.act(now, carry, Clock(), make_generator("act"), mode)
            assert action.shape == (4,)
        update = agent.update(rows, Clock(updates=step), make_generator("update"))
        assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert torch.isfinite(weights_of(agent)).all()
    assert not torch.equal(weights_of(agent), before)
    copy = make_agent(algorithm, settings_of(network), specs)
    copy.load_state(agent.state())
    assert torch.equal(weights_of(copy), weights_of(agent))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_scalar_observation_becomes_a_vector_of_size_one(algorithm: str, network: str) -> None:
    """A Box of shape (): rows have no axis for it."""
    specs = Specs({"obs": ObservationSpec((), "float32", "vector")}, DISCRETE)
    agent, rows = (
        make_agent(algorithm, settings_of(network), specs),
        rows_for(algorithm, specs, 0, is_recurrent(network)),
    )
    now = {**column_of(rows), "previous_action": specs.action.zeros(4)}
    action, _, _ = agent.act(now, agent.initial_carry(4), Clock(), make_generator("act"), Mode.COLLECT)
    assert action.shape == (4,)
    update = agent.update(rows, Clock(), make_generator("update"))
    assert all(np.isfinite(float(value)) for value in update.metrics.values())


class NotRecurrent(DQN):
    """An algorithm that trains no recurrent networks."""

    traits = replace(DQN.traits, recurrent=False)


def test_algorithm_without_recurrent_support_lists_those_with_it() -> None:
    words = [f"algorithm.kind={__name__}.NotRecurrent", "algorithm.network=gru"]
    with pytest.raises(ConfigError, match=r"algorithm\.network\.kind.*recurrent.*dqn, ppo, reinforce, sac"):
        make_config("CartPole-v1:dqn", words)


def test_sac_uses_and_trains_its_encoder() -> None:
    """Also with vectors, where SAC without an encoder uses the numpy engine."""
    specs = Specs(VECTOR, BOX)
    agent = make_agent("sac", {"kind": "mlp", "units": [8]}, specs)
    encoder = agent.critics.encoder.network.layers[0].weight
    before, now = encoder.detach().clone(), column_of(random_rows(specs, 4, 2))
    action = agent.act(now, {}, Clock(), make_generator("act"), Mode.EVALUATE)[0]
    agent.update(random_rows(specs, 4, 2), Clock(), make_generator("update"))
    assert not torch.equal(encoder, before)
    with torch.no_grad():
        encoder.zero_()
    assert not np.array_equal(agent.act(now, {}, Clock(), make_generator("act"), Mode.EVALUATE)[0], action)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_uses_the_configured_initialiser(algorithm: str) -> None:
    specs = Specs(VECTOR, DISCRETE)
    trunks = []
    for how in (*INITIALISERS, None):
        network = {"kind": "mlp", "units": [16], "activation": "relu", "norm": "layer", "initialiser": how}
        state = make_agent(algorithm, network, specs).state()
        trunks.append(first_weight(state))
    orthogonal, xavier, kaiming, own, default = trunks
    np.testing.assert_allclose(orthogonal.T @ orthogonal, 2 * np.eye(3), atol=1e-5)
    assert np.abs(own).max() <= 1 / np.sqrt(3)
    assert np.abs(kaiming).max() > 1 / np.sqrt(3)
    assert np.abs(xavier).max() <= np.sqrt(6 / (3 + 16))
    same = orthogonal if algorithm in ("ppo", "reinforce") else own
    np.testing.assert_allclose(default.T @ default, same.T @ same, atol=1e-5)


@pytest.mark.parametrize("action", [BOX, DISCRETE])
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_sac_policy_and_critics_use_the_configured_norm_and_initialiser(action: Any, norm: str) -> None:
    specs, outputs = Specs(VECTOR, action), []
    for how in (*INITIALISERS, None):
        settings = {"units": [16, 12], "norm": norm, "initialiser": how}
        agent = make_agent("sac", None, specs, **settings)
        for layers in (agent.actor.layers, agent.critics.ensemble.layers):
            assert len(layers) == (4 if norm == "none" else 6) + (layers is agent.critics.ensemble.layers)
        members = [agent.actor.layers[-2 if norm == "none" else -3].weight]
        members += [weight.T for weight in agent.critics.ensemble.layers[-3 if norm == "none" else -4].weight]
        check_initial([member.detach().numpy() for member in members], how)
        last = (agent.actor.output.weight, agent.critics.ensemble.layers[-1].weight)
        outputs += [float(weight.detach().abs().max()) for weight in last]
        assert (agent.numpy_engine is not None) == (norm == "none" and action is BOX)
        learning = [*agent.actor.named_parameters(), *agent.critics.named_parameters()]
        before = [weight.detach().clone() for _, weight in learning]
        agent.update(rows_for("sac", specs, 0), Clock(), make_generator("update"))
        unchanged = [name for (name, now), then in zip(learning, before, strict=True) if torch.equal(now, then)]
        assert unchanged == []  # norms learn too
    assert max(outputs) <= 1 / np.sqrt(12)  # last layers stay torch's


def check_initial(members: list[Any], how: str | None) -> None:
    """Weights (12, 16), drawn independently."""
    assert not any(np.array_equal(members[0], other) for other in members[1:])
    assert not np.array_equal(members[1], members[2])
    for weight in members:
        assert weight.shape == (12, 16)
        largest = np.abs(weight).max()
        if how == "orthogonal":
            np.testing.assert_allclose(weight @ weight.T, 2 * np.eye(12), atol=1e-5)
        bound = {"xavier": np.sqrt(6 / 28), "kaiming": np.sqrt(6 / 16)}.get(how or "", 1 / 4)
        assert how == "orthogonal" or 0.85 * bound < largest <= bound


def first_weight(state: Any) -> Any:
    """The first layer (16, 3), which reads the observation."""
    for value in state.values():
        found = first_weight(value) if isinstance(value, dict) else value
        if isinstance(found, np.ndarray) and found.shape == (16, 3):
            return found
    return None


@pytest.mark.parametrize(("spec", "expected"), [("CartPole-v1:ppo", "mlp"), ("Reverie/Motion-v0:ppo", "nature")])
def test_auto_encoder_of_a_recurrent_network_is_resolved_at_creation(spec: str, expected: str) -> None:
    config = make_config(spec, ["algorithm.network={kind: gru, encoder: {kind: auto, norm: layer}}", "env.vector=sync"])
    encoder = config.algorithm.network.encoder  # type: ignore[attr-defined]
    assert (encoder.kind, encoder.norm) == (expected, "layer")


def test_networks_page_lists_every_network_and_its_settings() -> None:
    text = PAGE.read_text()
    for kind in registry.kinds("network"):
        assert f"`{kind}`" in text
        fields = registry.load("network", kind).Config.model_fields
        assert [name for name in fields if f"`{name}`" not in text] == []


def test_example_on_the_networks_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGE.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    assert len(example.strip().splitlines()) <= 25
    (tmp_path / "my_networks.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    network = ["algorithm.network={kind: my_networks.TwoTowers, width: 12}", "env.vector=sync"]
    config = make_config("CartPole-v1:ppo", network, seed=1)
    assert config.algorithm.network.model_dump() == {"kind": "my_networks.TwoTowers", "width": 12}  # type: ignore[attr-defined]
    specs = Specs(VECTOR, DISCRETE)
    for algorithm in ALGORITHMS:
        agent = make_agent(algorithm, {"kind": "my_networks.TwoTowers", "width": 12}, specs)
        agent.update(rows_for(algorithm, specs, 0), Clock(), make_generator("update"))


class NoFeatures(torch.nn.Module):
    """A network without the attribute ``features``."""

    class Config(ComponentConfig):
        kind: str = f"{__name__}.NoFeatures"

    def __init__(self, config: Config, observations: Any) -> None:
        super().__init__()


class FormerRecurrent(torch.nn.Module):
    """A recurrent network as earlier versions had it."""

    has_memory = True

    class Config(ComponentConfig):
        kind: str = f"{__name__}.FormerRecurrent"

    def __init__(self, config: Config, observations: Any) -> None:
        super().__init__()
        self.features = 3

    def forward(self, observation: Any) -> torch.Tensor:
        return torch.zeros(len(observation["obs"]), 3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_recurrent_network_of_an_earlier_version_is_refused(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=r"declares has_memory.*\n.*Inherit from reverie\.nets\.recurrent"):
        make_agent(algorithm, {"kind": f"{__name__}.FormerRecurrent"}, Specs(VECTOR, DISCRETE))


class WithoutEncoder(RecurrentNetwork):
    class Config(RecurrentConfig):
        kind: str = f"{__name__}.WithoutEncoder"

    def __init__(self, config: Config, observations: Any) -> None:
        torch.nn.Module.__init__(self)
        self.features = 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_recurrent_network_without_encoder_is_refused(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=r"has no encoder.*\n.*super\(\)"):
        make_agent(algorithm, {"kind": f"{__name__}.WithoutEncoder"}, Specs(VECTOR, DISCRETE))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_network_without_features_is_refused(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=r"NoFeatures' has no attribute features.*\n.*self\.features"):
        make_agent(algorithm, {"kind": f"{__name__}.NoFeatures"}, Specs(VECTOR, DISCRETE))


class BadNetwork(torch.nn.Module):
    """A network with another output width than ``features``, or that fails where ``how`` names."""

    class Config(ComponentConfig):
        kind: str = f"{__name__}.BadNetwork"
        how: str = "width"

    def __init__(self, config: Config, observations: Any) -> None:
        super().__init__()
        self.how, self.features = config.how, 3
        if self.how == "constructor":
            raise KeyError("pixels")

    def forward(self, observation: Any) -> torch.Tensor:
        if self.how == "forward":
            return torch.nn.functional.linear(observation["obs"], torch.zeros(2, 99))
        return torch.zeros(len(observation["obs"]), 5)


class BadRecurrent(RecurrentNetwork):
    """A recurrent network with another output width than ``features``, or whose hidden state changes its shape."""

    class Config(RecurrentConfig):
        kind: str = f"{__name__}.BadRecurrent"
        how: str = "width"

    def __init__(self, config: Config, observations: Any) -> None:
        super().__init__(config, observations)
        self.how = config.how

    def initial_hidden(self, count: int) -> dict[str, Any]:
        return {"sum": np.zeros((count, 4), np.float32)}

    def step(self, observation: Any, is_first: Any, hidden: Any) -> Any:
        width = self.features + (self.how == "width")
        return torch.zeros(len(is_first), width), {"sum": hidden["sum"][:, : 3 if self.how == "hidden" else 4]}


@pytest.mark.parametrize(
    ("network", "how", "message"),
    [
        ("BadNetwork", "width", r"has features = 3, but maps 2 rows to a tensor of shape \(2, 5\)"),
        ("BadNetwork", "constructor", r"failed \(test_networks\.py, line \d+\): KeyError: 'pixels'"),
        ("BadNetwork", "forward", r"failed \(test_networks\.py, line \d+\): RuntimeError: mat1 and mat2"),
        ("BadRecurrent", "width", r"features = 64, but maps 2 rows to a tensor of shape \(2, 65\)"),
        ("BadRecurrent", "hidden", r"its step returns"),
    ],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_network_that_breaks_its_contract_is_refused(algorithm: str, network: str, how: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message + r".*\n.*docs/networks\.md"):
        make_agent(algorithm, {"kind": f"{__name__}.{network}", "how": how}, Specs(VECTOR, DISCRETE))
