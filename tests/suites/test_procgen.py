"""Procgen: levels, distribution modes, limits, errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, max_episode_steps_of

pytestmark = pytest.mark.needs("procgen")
NOTHING, RIGHT = 4, 7
ACTIONS = make_generator("actions").integers(0, 15, 60)


def made(game: str = "coinrun", **kwargs: Any) -> closing[Any]:
    return closing(make_env(EnvConfig(id=f"procgen/{game}", kwargs=kwargs)))


def play(env: Any, seed: int) -> Iterator[np.ndarray]:
    yield env.reset(seed=seed)[0]
    for action in ACTIONS:
        observation, _, terminated, truncated, _ = env.step(action)
        yield observation
        if terminated or truncated:
            return


def test_an_episode_follows_from_its_seed_alone() -> None:
    with made() as fresh, made() as used:
        list(play(used, 9))
        for one, other in zip(play(fresh, 3), play(used, 3), strict=True):
            np.testing.assert_array_equal(one, other)


def test_levels_come_from_the_range() -> None:
    with made(num_levels=3, start_level=50) as env:
        assert {env.reset(seed=seed)[1]["level"] for seed in range(30)} == {50, 51, 52}
    with made() as env:
        assert len({env.reset(seed=seed)[1]["level"] for seed in range(10)}) == 10


def test_modes_draw_other_levels() -> None:
    images = []
    for mode in ("easy", "hard", "exploration"):
        with made(distribution_mode=mode, num_levels=1, start_level=7) as env:
            images.append(env.reset(seed=0)[0])
    assert not np.array_equal(images[0], images[1])
    assert not np.array_equal(images[1], images[2])


def test_a_game_without_end_is_truncated_with_its_last_image() -> None:
    with made("maze", num_levels=1, start_level=3) as env:
        assert max_episode_steps_of(env) == 500
        env.reset(seed=0)
        steps = [env.step(NOTHING) for _ in range(500)]
    assert {step[2:4] for step in steps[:-1]} == {(False, False)}
    assert steps[-1][2:4] == (False, True)
    np.testing.assert_array_equal(steps[-1][0], steps[-2][0])  # not the first image of another maze


def test_a_finished_level_terminates_with_success() -> None:
    with made("coinrun", distribution_mode="easy") as env:
        for seed in range(30):
            env.reset(seed=seed)
            for step in range(150):
                _, reward, terminated, truncated, info = env.step(RIGHT + (step // 3) % 2)  # right, with jumps
                if terminated:
                    break
            if terminated and reward > 0:
                assert (reward, truncated, info["success"]) == (10.0, False, 1.0)
                return
    pytest.fail("no level was finished")


@pytest.mark.parametrize(
    ("game", "mode", "message", "fix"),
    [
        ("coinrum", "easy", "no game 'coinrum'", "coinrun"),
        ("coinrun", "hart", "no distribution mode 'hart'", "hard"),
        ("coinrun", "memory", "coinrun has no distribution mode 'memory'", "easy, hard, exploration"),
    ],
)
def test_what_does_not_exist_is_refused(game: str, mode: str, message: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught, made(game, distribution_mode=mode):
        pass
    assert fix in caught.value.fix
