"""Microbatches add up to the gradient of the whole batch, and a network sees only one microbatch at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reverie.algos.dqn import DQN
from reverie.algos.ppo import PPO
from reverie.algos.reinforce import Reinforce
from reverie.algos.sac import SAC
from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock
from reverie.nets.ensemble import EnsembleMLP
from tests.unit.algos.batches import BOX, DISCRETE, IMAGE, VECTOR, random_rows

LAYERS = (torch.nn.Linear, torch.nn.Conv2d, EnsembleMLP)
RECURRENT = {"kind": "lstm", "units": 8, "encoder": {"kind": "mlp", "units": [8]}}
WINDOWS = {"sequence": {"length": 7, "burn_in": 2}}
CASES: dict[str, tuple[Any, Any, dict[str, Any], int]] = {
    "ppo": (PPO, VECTOR, {"entropy_weight": 0.1, "batch_size": 16, "epochs": 2}, 9),
    "ppo with images": (PPO, IMAGE, {"network": {"kind": "nature", "units": (8,)}, "batch_size": 16, "epochs": 1}, 5),
    "recurrent ppo": (PPO, VECTOR, {"network": {"kind": "gru", "units": 8}, "batch_size": 1.0, "epochs": 1}, 5),
    "dqn": (DQN, VECTOR, {"dueling": True, "n_step": 2}, 3),
    "sac": (SAC, VECTOR, {"units": (8,)}, 2),
    "sac with images and discrete actions": (SAC, IMAGE, {"units": (8,), "image_features": 8, "image_shift": 4}, 2),
    "recurrent dqn": (DQN, VECTOR, {"network": RECURRENT, "n_step": 2, **WINDOWS}, 7),
    "recurrent sac": (SAC, VECTOR, {"network": RECURRENT, "units": (8,), **WINDOWS}, 7),
    "reinforce": (Reinforce, VECTOR, {"entropy_weight": 0.1}, 9),
    "reinforce without a baseline": (Reinforce, VECTOR, {"targets": "returns", "returns": "episode"}, 9),
    "recurrent reinforce": (Reinforce, VECTOR, {"network": {"kind": "gru", "units": 8}}, 5),
}


def learn(case: str, microbatches: int) -> tuple[Any, int, dict[str, float]]:
    """The weights after an update, the largest output of a network's first layer, and the metrics."""
    kind, observations, values, length = CASES[case]
    backend = Backend(engine="torch", microbatches=microbatches)
    config = kind.Config.model_validate({"learning_rate": 0.01, **values})
    action = BOX if case in ("sac", "recurrent sac") else DISCRETE
    agent = kind(config, Specs(observations, action), make_generator(1, "weights"), backend)
    networks = {PPO: ["model"], Reinforce: ["model"], DQN: ["online"], SAC: ["critics", "actor"]}[kind]
    seen: list[int] = []
    for network in networks:
        modules = getattr(agent, network).modules()
        layer = next(
            module for module in modules if isinstance(module, torch.nn.Linear | torch.nn.Conv2d | EnsembleMLP)
        )
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.numel()))
    rows = random_rows(agent.specs, 12, length)
    rows["truncated"][2, 1] = True
    metrics = agent.update(rows, Clock(), make_generator("update")).metrics
    names = ["critic_optimizer", "actor_optimizer"] if kind is SAC else ["optimizer"]
    weights = torch.cat([getattr(agent, name).flat.detach() for name in names])
    return weights, max(seen), {key: float(value) for key, value in metrics.items()}


@pytest.mark.parametrize("case", CASES)
def test_microbatches_add_up(case: str) -> None:
    whole, largest, metrics = learn(case, 1)
    summed, largest_microbatch, metrics_summed = learn(case, 3)
    torch.testing.assert_close(summed, whole, rtol=1e-4, atol=1e-5)
    assert metrics_summed == pytest.approx(metrics, rel=1e-3, abs=1e-5)
    assert largest_microbatch < largest or case == "recurrent ppo"  # its rollouts are evaluated in one piece
