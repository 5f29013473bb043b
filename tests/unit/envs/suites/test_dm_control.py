"""The control suite: ids, what is shown, seeds, and snapshots in mid-episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.accelerators import find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs

pytestmark = [
    pytest.mark.needs("dmc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CARTPOLE = EnvConfig(id="dmc/cartpole_swingup")
ACTIONS = make_generator("actions").uniform(-1, 1, (40, 1)).astype(np.float32)


def play(env: Any, actions: Any) -> list[np.ndarray]:
    steps = [env.step(action) for action in actions]
    return [np.concatenate([*observation.values(), [reward]]) for observation, reward, *_ in steps]


def test_what_it_shows_and_takes() -> None:
    specs = make_specs(CARTPOLE)
    assert {key: spec.shape for key, spec in specs.observations.items()} == {"obs/position": (3,), "obs/velocity": (2,)}
    assert specs.action.is_scaled
    assert specs.max_episode_steps == 1000
    walker = make_specs(EnvConfig(id="dmc/walker_walk"))
    assert walker.observations["obs/height"].shape == (1,)  # a bare number in the suite
    assert walker.action.shape == (6,)


def test_a_name_with_two_lines_is_found() -> None:
    assert make_specs(EnvConfig(id="dmc/ball_in_cup_catch")).action.shape == (2,)


def test_an_unknown_task_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no task 'cartpole_swing'") as caught:
        make_env(EnvConfig(id="dmc/cartpole_swing"))
    assert "cartpole_swingup" in caught.value.fix


def test_an_env_that_shows_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no observation"):
        make_env(CARTPOLE.model_copy(update={"kwargs": {"proprio": False}}))


def test_an_episode_follows_from_its_seed_alone() -> None:
    fresh, used = make_env(CARTPOLE), make_env(CARTPOLE)
    used.reset(seed=9)
    play(used, ACTIONS)
    for env in (fresh, used):
        env.reset(seed=3)
    np.testing.assert_array_equal(play(fresh, ACTIONS), play(used, ACTIONS))


def test_a_saved_state_goes_on_exactly() -> None:
    env, other = make_env(CARTPOLE), make_env(CARTPOLE)
    env.reset(seed=3)
    play(env, ACTIONS[:25])
    saved, loaded = find_accelerator(env), find_accelerator(other)
    assert saved is not None
    assert loaded is not None
    other.reset(seed=3)
    loaded.load(saved.save())
    np.testing.assert_array_equal(play(env, ACTIONS[25:]), play(other, ACTIONS[25:]))


def test_episodes_are_cut_after_a_thousand_steps() -> None:
    env = make_env(CARTPOLE)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(1000)]
    assert ends[-2] == (False, False)
    assert ends[-1] == (False, True)
