"""Craftax: all copies at once, a game that goes on and ends, frames, and errors."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector

pytestmark = pytest.mark.needs("craftax")
CLASSIC = EnvConfig(id="craftax/Craftax-Classic-Symbolic-v1", vector="jax", log_keys=("achievement_collect_sapling",))


def test_games_are_stepped_together_saved_exactly_and_truncated_at_the_limit() -> None:
    limited = CLASSIC.model_copy(update={"max_episode_steps": 40})
    with closing(make_vector(limited, 1, num_envs=3)) as vector:
        actions = vector.specs.action.sample(make_generator("actions"), 3 * 60).reshape(60, 3)
        first = vector.reset()
        assert vector.specs.action.classes == (17,)
        assert not np.array_equal(first["obs"][0], first["obs"][1])  # worlds of their own
        for action in actions[:30]:
            vector.step(action)
        state = vector.state()
        rows = [vector.step(action) for action in actions[30:]]
        vector.load_state(state)
        again = [vector.step(action) for action in actions[30:]]
    for one, other in zip(rows, again, strict=True):
        assert all(one[key].tobytes() == other[key].tobytes() for key in one)
    assert sum(int(row["truncated"].sum()) for row in rows) > 0
    assert set(np.unique([row["log/achievement_collect_sapling"] for row in rows])) <= {0.0, 1.0}


def test_a_frame_shows_the_world() -> None:
    with closing(make_env(CLASSIC, "rgb_array")) as env:
        env.reset(seed=0)
        frame = env.render()
    assert frame.ndim == 3
    assert frame.dtype == np.uint8
    assert frame.std() > 5


def test_an_unknown_env_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no env 'Craftax-Pixel-v1'") as caught:
        make_env(EnvConfig(id="craftax/Craftax-Pixel-v1"))
    assert "Craftax-Pixels-v1" in caught.value.fix
