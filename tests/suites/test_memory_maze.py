"""Memory Maze: mazes that follow from the seed, the end of an episode, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs import gl
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, max_episode_steps_of

pytestmark = [pytest.mark.needs("memory-maze"), pytest.mark.needs("gl")]
SMALL = EnvConfig(id="memory_maze/9x9", kwargs={"size": 16})
ACTIONS = make_generator("actions").integers(0, 6, 10)


@pytest.fixture(scope="module")
def env() -> Iterator[Any]:
    with closing(make_env(SMALL)) as made:
        yield made


def test_an_episode_follows_from_its_seed_alone(env: Any) -> None:
    """Also in an env that has played another maze before."""
    env.reset(seed=9)
    with closing(make_env(SMALL)) as fresh:
        start, other = fresh.reset(seed=3)[0], env.reset(seed=3)[0]
        np.testing.assert_array_equal(start, other)
        for action in ACTIONS:
            np.testing.assert_array_equal(fresh.step(action)[0], env.step(action)[0])


def test_another_seed_is_another_maze(env: Any) -> None:
    layouts = []
    for seed in (1, 2, 1):
        env.reset(seed=seed)
        layouts.append(str(env.unwrapped._maze_env._task._maze_arena._maze.entity_layer))
    assert layouts[0] == layouts[2]
    assert layouts[0] != layouts[1]


def test_the_time_limit_truncates(env: Any) -> None:
    assert max_episode_steps_of(env) == 1000
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(1000)]
    assert ends[-2] == (False, False)
    assert ends[-1] == (False, True)


def test_the_image_has_the_size_that_is_asked_for(env: Any) -> None:
    assert env.observation_space.shape == (16, 16, 3)
    assert env.render().shape == (64, 64, 3)


def test_an_unknown_size_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no maze '9x10'") as caught:
        make_env(EnvConfig(id="memory_maze/9x10"))
    assert "9x9" in caught.value.fix


def test_without_gl_the_debian_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl, "BACKENDS", ())
    monkeypatch.delenv(gl.VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="cannot render here") as caught:
        make_env(SMALL)
    assert "libegl1" in caught.value.fix
