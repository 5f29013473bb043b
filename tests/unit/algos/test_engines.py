"""The numpy and the torch engine agree: the same weights, metrics, actions and priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dqn import DQN
from reverie.algos.ppo import PPO
from reverie.algos.sac import SAC
from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Clock, Mode, Row
from tests.unit.algos.batches import (
    BOX,
    BYTES,
    DISCRETE,
    INDEX,
    MULTI_BINARY,
    MULTI_DISCRETE,
    VECTOR,
    column_of,
    random_rows,
)  # fmt: skip

MLP = {"kind": "mlp", "units": (16, 8)}
TWO_VECTORS = {"obs/a": VECTOR["obs"], "obs/b": VECTOR["obs"]}
CASES: dict[str, tuple[Any, dict[str, Any], ActionSpec, dict[str, Any]]] = {
    "ppo": (PPO, VECTOR, DISCRETE, {}),
    "ppo with one trunk, entropy and clipped values": (
        PPO, VECTOR, DISCRETE,
        {"shared_trunk": True, "entropy_weight": 0.1, "value_clip": 0.1, "clip": 0.05,
         "network": {**MLP, "activation": "relu"}},
    ),
    "ppo that never clips gradients": (PPO, INDEX, DISCRETE, {"max_grad_norm": None, "normalise_advantage": False}),
    "ppo with numbers": (PPO, TWO_VECTORS, BOX, {"entropy_weight": 0.1, "initial_log_std": -0.3}),
    "ppo with several choices": (PPO, BYTES, MULTI_DISCRETE, {"entropy_weight": 0.1}),
    "ppo with switches": (PPO, VECTOR, MULTI_BINARY, {}),
    "ppo that stops early": (PPO, VECTOR, DISCRETE, {"learning_rate": 0.05, "target_kl": 0.02, "batch_size": 16}),
    "ppo with decay": (PPO, VECTOR, DISCRETE, {"optimizer": {"kind": "adamw", "weight_decay": 0.3}}),
    "dqn": (DQN, VECTOR, DISCRETE, {"double": False}),
    "double dqn over several steps": (DQN, BYTES, DISCRETE, {"n_step": 3, "max_grad_norm": 0.1}),
    "sac": (SAC, VECTOR, BOX, {"units": (16, 8), "batch_size": 12}),
    "sac over several steps": (SAC, BYTES, BOX, {"units": (16, 8), "n_step": 3}),
    "sac with three critics and a fixed temperature": (
        SAC, TWO_VECTORS, BOX,
        {"units": (8,), "num_critics": 3, "activation": "tanh", "temperature": {"kind": "fixed"}},
    ),
}  # fmt: skip


def make(case: str, engine: str) -> Any:
    kind, observations, action, values = CASES[case]
    given = values if kind is SAC else {"network": MLP, **values}
    config = kind.Config.model_validate({"learning_rate": 0.01, **given})
    return kind(config, Specs(observations, action), make_generator(3, "weights"), Backend(engine=engine))


def is_by_numpy(agent: Any) -> bool:
    return agent.numpy_engine is not None


def weights(agent: Any) -> list[torch.Tensor]:
    optimizers = [agent.critic_optimizer, agent.actor_optimizer] if isinstance(agent, SAC) else [agent.optimizer]
    extra = [agent.target_flat] if isinstance(agent, SAC | DQN) else []
    return [optimizer.flat.detach() for optimizer in optimizers] + extra


def make_batch(agent: Any, seed: int) -> Row:
    """Rows with episode ends. For replay they have importance weights, so updates write priorities back."""
    length = 9 if isinstance(agent, PPO) else agent.config.n_step + 1
    rows = random_rows(agent.specs, 12, length, seed)
    rows["terminated"][1, 1] = rows["truncated"][2, 1] = rows["terminated"][3, 0] = True
    if length > 2:
        rows["is_first"][1:3, 2] = rows["is_first"][3, 1] = True
    if not isinstance(agent, PPO):
        importance = make_generator(seed, "importance").random((12, 1), dtype=np.float32)
        rows |= {"id": np.arange(12 * length).reshape(12, length), "importance": importance.repeat(length, 1)}
    return rows


@pytest.mark.parametrize("case", CASES)
def test_both_engines_learn_the_same(case: str) -> None:
    ends, results = [], []
    for engine in ("numpy", "torch"):
        agent = make(case, engine)
        assert is_by_numpy(agent) == (engine == "numpy")
        before = [part.clone() for part in weights(agent)]
        updates = [agent.update(make_batch(agent, n), Clock(updates=n), make_generator(n, "update")) for n in range(3)]
        assert not any(torch.equal(old, new) for old, new in zip(before, weights(agent), strict=True))
        ends.append(weights(agent))
        results.append(updates)
    for by_numpy, by_torch in zip(*ends, strict=True):
        torch.testing.assert_close(by_numpy, by_torch, rtol=2e-4, atol=2e-5)
    for one, other in zip(*results, strict=True):
        assert one.metrics.keys() == other.metrics.keys()
        assert one.count == other.count < (60 if case == "ppo that stops early" else 1000)
        for key in one.metrics:
            assert float(one.metrics[key]) == pytest.approx(float(other.metrics[key]), rel=1e-3, abs=1e-4), key
        assert (one.write_back is None) == case.startswith("ppo")
        if one.write_back is not None:
            assert one.write_back.columns["priority"] == pytest.approx(other.write_back.columns["priority"], rel=1e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", Mode)
def test_both_engines_act_the_same(case: str, mode: Mode) -> None:
    actions = []
    for engine in ("numpy", "torch"):
        agent = make(case, engine)
        now = column_of(make_batch(agent, 5))
        actions.append(agent.act(now, agent.initial_carry(12), Clock(), make_generator("act"), mode)[0])
    assert actions[0] == pytest.approx(actions[1], abs=1e-5)
    assert actions[0].dtype == actions[1].dtype
    assert len(actions[0]) == 12


def test_what_numpy_cannot_do_is_left_to_torch() -> None:
    specs = Specs(VECTOR, DISCRETE)
    for network in ({"kind": "mlp", "norm": "layer"}, {"kind": "mlp", "activation": "gelu"}):
        agent = PPO(PPO.Config.model_validate({"network": network}), specs, make_generator("weights"))
        assert agent.numpy_engine is None
    heads = ({"kind": "quantile"}, {"kind": "scalar", "hidden_units": 8})
    for values in ({"dueling": True}, {"noisy": True}, *({"head": head} for head in heads)):
        learner = DQN(DQN.Config.model_validate({"network": MLP, **values}), specs, make_generator("weights"))
        assert learner.numpy_engine is None
    assert SAC(SAC.Config(), specs, make_generator("weights")).numpy_engine is None  # discrete actions


OFF_POLICY = [case for case, (kind, *_) in CASES.items() if kind in (DQN, SAC)]


@pytest.mark.parametrize("case", OFF_POLICY)
def test_both_engines_of_one_agent_share_its_weights(case: str) -> None:
    """After a step of the numpy engine, the torch form computes the same values or actions, with and without noise."""
    agent = make(case, "numpy")
    agent.update(make_batch(agent, 1), Clock(), make_generator("update"))
    now, engines = column_of(make_batch(agent, 5)), (agent.engine, agent)
    assert agent.engine is not agent
    if isinstance(agent, DQN):
        outputs = [[engine.q_values(now, {}, None)[0] for engine in engines]]
    else:
        noises = (None, agent.action_kind.sample_noise(make_generator("noise"), 12))
        outputs = [[engine.choose(now, {}, noise)[0] for engine in engines] for noise in noises]
    for by_numpy, by_torch in outputs:
        np.testing.assert_allclose(by_numpy, by_torch, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", OFF_POLICY)
def test_both_engines_return_the_same_results_of_a_gradient_step(case: str) -> None:
    results = []
    for engine in ("numpy", "torch"):
        agent = make(case, engine)
        transitions = agent.replay.transitions(make_batch(agent, 2), 0.9, agent.config.n_step)
        settings = [agent.config] if isinstance(agent, DQN) else []
        found = agent.engine.gradient_step(transitions, *settings, 0.01, make_generator("step"))
        results.append([found] if isinstance(agent, DQN) else found)
    for by_numpy, by_torch in zip(*results, strict=True):
        assert by_numpy.metrics == pytest.approx({k: float(v) for k, v in by_torch.metrics.items()}, rel=1e-3, abs=1e-4)
        assert float(by_numpy.grad_norm) == pytest.approx(float(by_torch.grad_norm), rel=1e-3)
        for name, values in by_numpy.aux.items():
            torch.testing.assert_close(values, by_torch.aux[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "name"),
    [("ppo", "loss"), ("ppo", "gradient_step"), ("dqn", "next_q"), ("sac", "critic_loss"), ("sac", "actor_loss")],
)
def test_a_subclass_with_a_loss_of_its_own_is_computed_by_torch(case: str, name: str) -> None:
    base, called = CASES[case][0], []

    def own(self: Any, *arguments: Any, **named: Any) -> Any:
        called.append(name)
        return getattr(base, name)(self, *arguments, **named)

    variant = type("Variant", (base,), {name: own})
    assert (variant.traits.numpy_engine, base.traits.numpy_engine) == (False, True)
    agent = make(case, "numpy")
    own_agent = variant(agent.config, agent.specs, make_generator(3, "weights"), Backend(engine="numpy"))
    own_agent.update(make_batch(agent, 1), Clock(), make_generator("update"))
    assert called


def test_a_subclass_that_keeps_the_losses_stays_in_numpy() -> None:
    agent = make("ppo", "numpy")
    variant = type("Variant", (PPO,), {"update": lambda *_: None})(agent.config, agent.specs, make_generator(3))
    assert variant.numpy_engine is not None
