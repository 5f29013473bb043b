"""Every algorithm bootstraps through time limits: an endless reward of 1 is worth 1 / (1 - gamma), truncated or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.core import registry
from reverie.core.rng import make_generator
from reverie.core.types import Array, Clock
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time


def state_value(session: Session) -> float:
    algorithm: Any = session.algorithm
    return float(algorithm.model.value({"obs": torch.ones(1, 1)}))


def dqn_value(session: Session) -> float:
    algorithm: Any = session.algorithm
    return float(algorithm.online.head.values(algorithm.online({"obs": torch.ones(1, 1)})).max())


def dreamer_value(session: Session) -> float:
    """The value of a state in mid-episode, averaged over the envs."""
    algorithm: Any = session.algorithm
    latent = algorithm.model.rssm.unpack(algorithm.backend.to_tensors(session.collector.carry))
    return float(algorithm.critic(latent.features).mean().mean())


def planet_value(session: Session) -> float:
    """The predicted return over 10 steps of the plan for a state in mid-episode, averaged over the envs."""
    algorithm: Any = session.algorithm
    carry = algorithm.backend.to_tensors(session.collector.carry)
    plan = algorithm._plan(algorithm.model.rssm.unpack(carry), Clock(), make_generator("plan"))
    return float(plan.values.mean())


def sac_value(session: Session) -> float:
    algorithm: Any = session.algorithm
    return float(algorithm.critics(torch.ones(1, 1), torch.zeros(1, 1)).min())


def tdmpc2_value(session: Session) -> float:
    """The mean of all Q-functions for the policy's action."""
    algorithm: Any = session.algorithm
    latent = algorithm.model.encode({"obs": torch.ones(1, 1)})
    return float(algorithm.q_values(latent, algorithm.policy(latent).mode()).mean())


def table_value(session: Session) -> float:
    algorithm: Any = session.algorithm
    return float(algorithm.values.max())


FAST = ["env.num_envs=4", "evaluate.final_episodes=0"]
OFF_POLICY = ["phases.prefill.duration_steps=200", "phases.learn.collect.rows=8", "algorithm.target_rate=0.05"]
CASES: dict[str, tuple[list[str], Callable[[Session], float]]] = {
    "dqn": ([*OFF_POLICY, "phases.learn.duration_steps=4000", "buffers.main.min_rows=100",
    "algorithm.learning_rate=3e-3",
             "algorithm.n_step=3"], dqn_value),
    "dreamer": (["debug", "phases.prefill.duration_steps=100", "phases.learn.duration_steps=1000",
    "algorithm.horizon=10",
                 "phases.learn.update.train_ratio=8", "algorithm.optimizer.warmup=0", "**.bins=63",
                 "algorithm.learning_rate=1e-2", "algorithm.target_rate=0.1"], dreamer_value),
    "planet": (["phases.prefill.collect.episodes=4", "phases.prefill.duration_cycles=3",
                "phases.learn.collect.episodes=4", "phases.learn.duration_steps=100", "algorithm.batch_size=8",
                "algorithm.batch_length=16", "algorithm.planner={horizon: 10, samples: 40, elites: 4, iterations: 2}",
                "**.units=16", "algorithm.model.rssm={deter: 16, hidden: 16, stoch: 4}",
                "algorithm.learning_rate=1e-2"], planet_value),
    "ppo": (["phases.learn.collect.rows=256", "phases.learn.duration_steps=12000", "algorithm.learning_rate=3e-3",
             "algorithm.epochs=5"], state_value),
    "qlearning": (["env.kwargs.is_discrete=true", "phases.learn.duration_steps=3000"], table_value),
    "reinforce": (["phases.learn.duration_steps=40000", "algorithm.learning_rate=1e-2"], state_value),
    "sac": ([*OFF_POLICY, "env.kwargs.is_continuous=true", "algorithm.temperature={kind: fixed, value: 0}",
             "phases.learn.update.updates_per_step=0.25", "phases.learn.duration_steps=8000", "algorithm.units=[32]",
             "algorithm.learning_rate=3e-3", "algorithm.batch_size=64"], sac_value),
    "tdmpc": (["phases.prefill.duration_steps=200", "env.kwargs.is_continuous=true", "algorithm.planner.kind=none",
               "phases.pretrain.duration_updates=100", "phases.learn.collect.episodes=4", "algorithm.batch_size=64",
               "phases.learn.update.updates_per_step=0.5", "phases.learn.duration_steps=1500", "**.units=32",
               "algorithm.target_rate=0.2", "algorithm.target_every=1"], tdmpc2_value),
    "tdmpc2": ([*OFF_POLICY, "debug", "env.kwargs.is_continuous=true", "algorithm.planner.kind=none", "**.bins=101",
                "phases.pretrain.duration_updates=100", "phases.learn.update.updates_per_step=0.5", "**.units=64",
                "phases.learn.duration_steps=1000", "algorithm.learning_rate=5e-3", "algorithm.target_rate=1",
                "algorithm.loss_weights.value=1", "algorithm.num_critics=2"], tdmpc2_value),
}  # fmt: skip


def test_every_algorithm_is_covered() -> None:
    assert set(CASES) == set(registry.kinds("algorithm"))


@pytest.mark.parametrize("kind", CASES)
def test_values_bootstrap_through_time_limits(kind: str) -> None:
    words, value_of = CASES[kind]
    discount = [] if any("horizon" in word for word in words) else ["algorithm.gamma=0.9"]
    config = make_config(f"Reverie/Constant-v0:{kind}", [*FAST, *discount, *words], seed=1)
    session, evaluator = build(config), build_evaluator(config)
    Orchestrator(session, evaluator).run()
    with torch.no_grad():
        assert value_of(session) == pytest.approx(10, rel=0.05)
    session.close()


@pytest.mark.parametrize("vector", ["sync", "process", pytest.param("envpool", marks=pytest.mark.needs("envpool"))])
def test_values_bootstrap_through_the_time_limits_of_every_vector(vector: str) -> None:
    """MountainCar pays -1 per step, and random play never reaches the goal: every state is worth -1 / (1 - gamma)."""
    words = [*FAST, *CASES["ppo"][0], "algorithm.gamma=0.9", "env.max_episode_steps=20", f"env.vector={vector}"]
    words += ["normaliser.observation=off", "normaliser.reward=false"]
    config = make_config("MountainCar-v0:ppo", words, seed=1)
    session = build(config)
    Orchestrator(session, build_evaluator(config)).run()
    algorithm: Any = session.algorithm
    with torch.no_grad():
        values = algorithm.model.value({"obs": torch.as_tensor(session.collector.now["obs"])})
    assert values.numpy() == pytest.approx(np.full(4, -10), rel=0.05)
    session.close()


class TurnsEnv(gym.Env[Any, Any]):
    """Rewards alternate between 1 and 0. The observation is the next reward."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2)
        self.pays = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.pays = True
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, self.pays = float(self.pays), not self.pays
        return np.full(1, self.pays, np.float32), reward, False, False, {}


@pytest.mark.parametrize("returns", ["reward_to_go", "episode"])
def test_reinforce_baseline_bootstraps_truncated_returns(returns: str) -> None:
    """With gamma 0.8 the state before a reward of 1 is worth 1 / (1 - 0.64), the other one 0.8 times that."""
    words = [f"algorithm.returns={returns}", "algorithm.gamma=0.8", "algorithm.learning_rate=1e-2"]
    words += ["env.max_episode_steps=9", "phases.learn.duration_steps=20000"]
    config = make_config("tests.contracts.test_truncation.TurnsEnv:reinforce", [*FAST, *words], seed=1)
    session = build(config)
    Orchestrator(session, build_evaluator(config)).run()
    algorithm: Any = session.algorithm
    with torch.no_grad():
        values = algorithm.model.value({"obs": torch.tensor([[1.0], [0.0]])}).tolist()
    assert values == pytest.approx([1 / 0.36, 0.8 / 0.36], rel=0.05)
    session.close()
