"""A policy as ONNX computes the actions of Reverie, from raw observations to the env's own action space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import reverie
from reverie.agent import Agent
from reverie.core.errors import ConfigError, RunError
from reverie.lab.export import onnx_policy
from reverie.lab.export.onnx_policy import OBSERVATIONS, export_onnx, make_graph

SHORT = ("env.vector=sync", "evaluate.final_episodes=1", "preflight.enabled=false")
SPECS = {
    "ppo": ("CartPole-v1:ppo", ("normaliser.observation=rolling", "algorithm.epochs=1"), 64),
    "continuous ppo": ("Pendulum-v1:ppo", ("algorithm.epochs=1",), 64),
    "sac": ("Pendulum-v1:sac", (), 120),
    "discrete sac": ("CartPole-v1:sac", (), 120),
    "dqn": ("CartPole-v1:dqn", (), 120),
    "quantile dqn": ("CartPole-v1:dqn", ("algorithm.head.kind=quantile", "algorithm.noisy=true"), 120),
    "indices": ("FrozenLake-v1:ppo", ("algorithm.epochs=1",), 64),
}


def train(spec: str, words: tuple[str, ...], steps: int, runs_dir: Path) -> Agent:
    return reverie.train(spec, *words, *SHORT, steps=steps, runs_dir=runs_dir).agent("final")


@pytest.mark.parametrize("name", SPECS)
def test_the_graph_acts_like_the_policy(name: str, tmp_path: Path) -> None:
    """In torch, which needs no extra: normaliser, network and action scaling."""
    agent = train(*SPECS[name], tmp_path)
    rows, ours = onnx_policy._play(agent, 50)
    with torch.inference_mode():
        theirs = make_graph(agent.policy)(*map(torch.from_numpy, rows.values())).numpy()
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)


@pytest.mark.needs("onnx")
@pytest.mark.parametrize("name", ["ppo", "continuous ppo", "sac", "dqn"])
def test_onnxruntime_agrees_on_a_thousand_observations(name: str, tmp_path: Path) -> None:
    agent = train(*SPECS[name], tmp_path)
    model, agreement = export_onnx(agent, {"run": "a run"})
    assert agreement.observations == OBSERVATIONS
    assert agreement.equal == OBSERVATIONS or agreement.largest_difference < 1e-5
    import onnx

    facts = json.loads(onnx.load_from_string(model).metadata_props[0].value)
    assert facts["run"] == "a run"
    assert list(facts["inputs"]) == ["obs"]


@pytest.mark.needs("onnx")
def test_a_graph_that_acts_differently_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = train(*SPECS["continuous ppo"], tmp_path)
    monkeypatch.setattr(onnx_policy, "_to_env_action", lambda action, spec: action)
    with pytest.raises(RunError, match="does not act like the policy"):
        export_onnx(agent, {})


def test_policies_with_a_hidden_state_are_refused(tmp_path: Path) -> None:
    words = ("algorithm.network.kind=gru", "algorithm.epochs=1", "phases.learn.collect.rows=64")
    agent = train("CartPole-v1:ppo", words, 64, tmp_path)
    with pytest.raises(ConfigError, match="recurrent policy cannot be exported"):
        make_graph(agent.policy)


def test_policies_that_are_no_network_are_refused(tmp_path: Path) -> None:
    agent = train("FrozenLake-v1:qlearning", (), 64, tmp_path)
    with pytest.raises(ConfigError, match="policy of qlearning cannot be exported"):
        make_graph(agent.policy)


def test_the_action_map_is_that_of_the_env() -> None:
    from reverie.core.specs import _action
    from reverie.envs.episode import make_action_map

    actions: dict[str, tuple[gym.Space[Any], np.ndarray]] = {
        "scaled": (gym.spaces.Box(-2, 5, (3,), np.float32), np.linspace(-1.5, 1.5, 12, dtype=np.float32).reshape(4, 3)),
        "half bounded": (gym.spaces.Box(0, np.inf, (2,), np.float32), np.array([[-1, 2], [3, -4]], np.float32)),
        "discrete": (gym.spaces.Discrete(3, start=5), np.array([0, 2])),
        "multi": (gym.spaces.MultiDiscrete([3, 4], start=[1, -1]), np.array([[0, 3], [2, 1]])),
    }
    for space, action in actions.values():
        spec = _action(space)
        to_env = make_action_map(spec, space)
        theirs = onnx_policy._to_env_action(torch.from_numpy(action), spec).numpy()
        np.testing.assert_array_equal(theirs, np.array([to_env(one) for one in action]))
