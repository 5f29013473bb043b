"""PlaNet learns in a short run: it plans in its model after a few episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie import api
from reverie.core.types import Array

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time


class SledEnv(gym.Env[Any, Any]):
    """A sled that starts off the middle of a line and keeps most of its speed. Near the middle it earns up to 1.

    An episode has 20 steps.
    """

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-3, 3, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.place = self.speed = 0.0
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed, self.steps = float(self.np_random.choice([-1.5, 1.5])), 0.0, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.speed = 0.7 * self.speed + 0.2 * float(action[0])
        self.place = float(np.clip(self.place + self.speed, -3, 3))
        self.steps += 1
        return self._observation(), float(np.exp(-2 * self.place**2)), False, self.steps == 20, {}

    def _observation(self) -> Array:
        return np.array([self.place, self.speed], np.float32)


TINY = (
    "tests.e2e.test_learning_planet.SledEnv:planet", "env.vector=sync", "**.units=8",
    "evaluate.final_episodes=0", "evaluate.num_envs=1", "evaluate.foresight.dreams=2", "algorithm.batch_size=4",
    "algorithm.planner={horizon: 3, samples: 12, elites: 3, iterations: 2}", "algorithm.batch_length=8",
    "algorithm.model.rssm={deter: 8, hidden: 8, stoch: 4}",
)  # fmt: skip
UPDATE = {"update": {"updates": 4}}


def test_the_model_first_and_then_the_task(tmp_path: Path) -> None:
    phases = [
        {"name": "explore", "controller": "random", "duration_cycles": 1,
         "hooks": [{"collect": {"episodes": 2}}, {"update_world_model": {"updates": 8}}]},
        {"name": "learn", "duration_steps": 60,
         "hooks": [UPDATE, {"collect": {"episodes": 1}}, {"evaluate": {"episodes": 1, "every_steps": 40}}]},
    ]  # fmt: skip
    run = api.train(*TINY, f"phases={json.dumps(phases)}", seed=1, runs_dir=tmp_path)
    explored = [line for line in run.metrics() if line["phase"] == "explore"]
    assert "update_world_model/loss_reward" in explored[-1]
    assert not any(key.startswith("collect/plan") for line in explored for key in line)
    assert any("collect/plan_gain" in line for line in run.metrics() if line["phase"] == "learn")
    assert any("evaluate/open_loop/reward/mse" in line for line in run.metrics())


def test_stored_episodes_first_and_then_the_env(tmp_path: Path) -> None:
    data = api.record_data("tests.e2e.test_learning_planet.SledEnv", out=tmp_path / "data", episodes=4, random=True)
    phases = [
        {"name": "offline", "type": "offline", "hooks": [UPDATE], "duration_updates": 8},
        {"name": "online", "hooks": [{"collect": {"episodes": 1}}, UPDATE], "duration_steps": 40},
    ]
    words = (*TINY, f"buffers.main.source={data}", f"phases={json.dumps(phases)}")
    run = api.train(*words, seed=1, runs_dir=tmp_path)
    last = run.metrics()[-1]
    assert (last["updates"], last["env_steps"]) == (16, 40)


def test_planet_learns_to_plan(tmp_path: Path) -> None:
    """Random actions earn about 2 in 20 steps, the best ones about 15."""
    words = (
        "env.num_envs=4", "env.vector=sync", "evaluate.final_episodes=0",
        "evaluate.num_envs=4", "evaluate.foresight.dreams=2", "phases.prefill.collect.episodes=12",
        "phases.learn.collect.episodes=4",
        "phases.learn.update.updates=50", "phases.learn.evaluate={episodes: 8, every_steps: 80}",
        "algorithm.planner={horizon: 6, samples: 60, elites: 8, iterations: 3}", "algorithm.batch_size=12",
        "algorithm.batch_length=12", "algorithm.loss_weights={reconstruction: 10, continuation: 0}", "**.units=32",
        "algorithm.model.rssm={deter: 32, hidden: 32, stoch: 8}", "algorithm.learning_rate=3e-3",
        "phases.learn.duration_steps=480",
    )  # fmt: skip
    run = api.train("tests.e2e.test_learning_planet.SledEnv:planet", *words, seed=1, runs_dir=tmp_path)
    by_chance = [episode["return"] for episode in run.scores()[:12]]
    assert sum(by_chance) / 12 < 5
    scores = [line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line]
    assert max(scores) >= 11
