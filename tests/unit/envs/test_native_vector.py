from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_vector
from reverie.envs.native_vector import NativeVector, check_autoreset

CARTPOLE = EnvConfig(id="CartPole-v1", num_envs=4, vector="native")


def _play(vector: NativeVector, steps: int) -> list[Row]:
    rng = make_generator("native")
    return [vector.step(vector.specs.action.sample(rng, vector.num_envs)) for _ in range(steps)]


def test_first_rows_follow_final_rows() -> None:
    vector = NativeVector(CARTPOLE, 0, "collect", 4)
    rows = [vector.reset(), *_play(vector, 200)]
    assert rows[0]["is_first"].all()
    for before, now in itertools.pairwise(rows):
        assert (now["is_first"] == (before["terminated"] | before["truncated"])).all()
        assert (now["reward"] == ~now["is_first"]).all()
    assert sum(row["is_first"].sum() for row in rows) > 20
    assert vector.specs.max_episode_steps == 500


@pytest.mark.parametrize("moment", [0, 1, 15, 60])
def test_a_saved_cartpole_continues_bit_for_bit(moment: int) -> None:
    vector = NativeVector(CARTPOLE, 0, "collect", 4)
    vector.reset()
    _play(vector, moment)
    restored = NativeVector(CARTPOLE, 99, "collect", 4)
    restored.load_state(vector.state())
    for one, other in zip(_play(vector, 100), _play(restored, 100), strict=True):
        assert all(one[key].tobytes() == other[key].tobytes() for key in one)


def test_a_vector_saved_before_its_first_reset_starts_alike() -> None:
    vector, restored = NativeVector(CARTPOLE, 0, "collect", 4), NativeVector(CARTPOLE, 99, "collect", 4)
    restored.load_state(vector.state())
    assert vector.reset()["obs"].tobytes() == restored.reset()["obs"].tobytes()


def test_a_saved_state_does_not_follow_the_env() -> None:
    vector = NativeVector(CARTPOLE, 0, "collect", 4)
    vector.reset()
    state = vector.state()
    kept = state["env"]["state"].copy()
    _play(vector, 5)
    assert np.array_equal(state["env"]["state"], kept)


def test_another_number_of_envs_is_refused() -> None:
    vector = NativeVector(CARTPOLE, 0, "collect", 4)
    vector.reset()
    with pytest.raises(RunError, match=r"env\.num_envs=4"):
        NativeVector(CARTPOLE, 0, "collect", 2).load_state(vector.state())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "Pendulum-v1"}, "no vector class"),
        ({"id": "my_module.MyEnv"}, "no vector class"),
        ({"id": "CartPole-v1", "log_keys": ("success",)}, r"env\.log_keys"),
        ({"id": "CartPole-v1", "max_episode_steps": 10}, r"env\.max_episode_steps"),
        ({"id": "CartPole-v1", "wrappers": ("one_hot",)}, r"env\.wrappers"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_way_out(settings: dict[str, object], message: str) -> None:
    config = EnvConfig.model_validate({**settings, "vector": "native"})
    with pytest.raises(ConfigError, match=message) as caught:
        make_vector(config, 0)
    assert "env.vector=sync" in caught.value.fix


def test_a_vector_class_must_reset_on_the_next_step() -> None:
    env = gym.make_vec(
        "CartPole-v1", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
    )
    with pytest.raises(ConfigError, match="reset on the next step"):
        check_autoreset(env, "CartPole-v1")


def test_an_unknown_vector_class_says_that_it_cannot_be_saved() -> None:
    vector = NativeVector(CARTPOLE, 0, "collect", 4)
    vector._env = gym.make_vec("Pendulum-v1", 4, vectorization_mode="sync")
    with pytest.raises(RunError, match="cannot be saved"):
        vector.state()
