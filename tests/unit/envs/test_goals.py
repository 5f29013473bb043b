"""Goal functions of an env: found, called for all goals at once, and checked against what the env returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.api import make_config, train
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.config import EnvConfig
from reverie.envs.goals import make_goals
from tests.toy_goals import BitFlipping

PATH = "tests.unit.envs.test_goals"
TOY = "tests.toy_goals.BitFlipping"


class OneByOne(BitFlipping):
    """Compares single goals only."""

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        return bool(np.linalg.norm(achieved_goal - desired_goal) == 0)


class WithoutRewards(BitFlipping):
    compute_reward = property()  # type: ignore[assignment]


class WithInfo(BitFlipping):
    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Any:
        return -1.0 if self.steps == 0 else super().compute_reward(achieved_goal, desired_goal, info) + 0 * info["wind"]

    def step(self, action: Any) -> Any:
        self.state, self.steps = self.state.copy(), self.steps + 1
        return self._observe(), -1.0, False, self.steps >= self.bits, {}


def test_many_pairs_of_goals_are_judged_at_once() -> None:
    goals = make_goals(EnvConfig(id=TOY, kwargs={"bits": 3, "dense": True}))
    achieved = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0]], np.float32)
    desired = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.float32)
    np.testing.assert_array_equal(goals.rewards(achieved, desired), [0, -2, -1])
    assert goals.terminated is not None
    np.testing.assert_array_equal(goals.terminated(achieved, desired), [True, False, False])


def test_functions_of_single_goals_are_called_for_one_after_the_other() -> None:
    goals = make_goals(EnvConfig(id=f"{PATH}.OneByOne", kwargs={"bits": 2}))
    assert goals.terminated is not None
    ends = goals.terminated(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[[0, 0]])
    np.testing.assert_array_equal(ends, [True, False])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (EnvConfig(id="CartPole-v1"), "has no goals"),
        (EnvConfig(id=f"{PATH}.WithInfo"), "raised KeyError: 'wind'"),
        (EnvConfig.model_validate({"id": TOY, "kwargs": {"dense": True}, "wrappers": ["reward_clip"]}),
         "compute_reward of 'tests.toy_goals.BitFlipping' does not give what the env returns"),
        (EnvConfig.model_validate({"id": TOY, "wrappers": [{"kind": "drop_keys", "keys": ["desired_goal"]}]}),
         "has no goals"),
    ],
)  # fmt: skip
def test_what_hindsight_cannot_use_is_refused(env: EnvConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_goals(env)


def test_an_env_whose_rewards_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="no compute_reward"):
        make_goals(EnvConfig(id=f"{PATH}.WithoutRewards"))


def test_a_run_without_goals_or_with_sequences_is_refused_before_it_starts(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="has no goals"):
        train("CartPole-v1:dqn", "buffers.main.hindsight.ratio=0.5", runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"Window is what the algorithm reads from the buffer main"):
        make_config(f"{TOY}:dqn", ["buffers.main.hindsight.ratio=0.5", "algorithm.network={kind: gru, units: 4}"])
    assert not list(tmp_path.iterdir())
