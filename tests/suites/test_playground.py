"""MuJoCo Playground: all copies at once, the time limit, frames, and errors."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector, max_episode_steps_of

pytestmark = pytest.mark.needs("playground")
CARTPOLE = EnvConfig(id="playground/CartpoleBalance", vector="jax")


def test_copies_are_stepped_together_saved_exactly_and_truncated_at_the_limit() -> None:
    limited = CARTPOLE.model_copy(update={"max_episode_steps": 8})
    with closing(make_vector(limited, 1, num_envs=3)) as vector:
        actions = make_generator("actions").uniform(-1, 1, (20, 3, 1)).astype(np.float32)
        assert not np.array_equal(*vector.reset()["obs"][:2])
        for action in actions[:5]:
            vector.step(action)
        state = vector.state()
        rows = [vector.step(action) for action in actions[5:]]
        vector.load_state(state)
        again = [vector.step(action) for action in actions[5:]]
    for one, other in zip(rows, again, strict=True):
        assert all(one[key].tobytes() == other[key].tobytes() for key in one)
    assert [int(row["truncated"].sum()) for row in rows[:4]] == [0, 0, 3, 0]
    assert 0 < np.max([row["reward"] for row in rows]) <= 1


def test_a_frame_shows_the_task() -> None:
    with closing(make_env(CARTPOLE, "rgb_array")) as env:
        assert max_episode_steps_of(env) == 1000
        env.reset(seed=0)
        assert env.render().std() > 5


def test_an_unknown_task_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no task 'CartpoleBalanc'") as caught:
        make_env(EnvConfig(id="playground/CartpoleBalanc"))
    assert "CartpoleBalance" in caught.value.fix
