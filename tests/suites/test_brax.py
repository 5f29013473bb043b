"""Brax: spaces, how episodes end, both vectors beside each other, frames, and errors."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector, max_episode_steps_of

pytestmark = pytest.mark.needs("brax")
PENDULUM = EnvConfig(id="brax/inverted_pendulum", vector="jax")


def test_rows_are_those_of_single_envs_up_to_rounding() -> None:
    rows = []
    actions = make_generator("actions").uniform(-1, 1, (30, 3, 1)).astype(np.float32)
    for kind in ("jax", "sync"):
        config = PENDULUM.model_copy(update={"vector": kind, "max_episode_steps": 5})
        with closing(make_vector(config, 1, num_envs=3)) as vector:
            rows.append([vector.reset(), *(vector.step(action) for action in actions)])
    for one, other in zip(*rows, strict=True):
        np.testing.assert_allclose(one["obs"], other["obs"], atol=1e-3)
        for key in ("reward", "is_first", "terminated", "truncated"):
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)
    ends = {flag: sum(int(row[flag].sum()) for row in rows[0]) for flag in ("terminated", "truncated")}
    assert min(ends.values()) > 0, ends


def test_a_fall_terminates_and_only_the_limit_truncates() -> None:
    with closing(make_vector(PENDULUM, 1, num_envs=3)) as vector:
        assert vector.specs.max_episode_steps == 1000
        row = vector.reset()
        for _ in range(100):
            row = vector.step(np.ones((3, 1), np.float32))
            assert not row["truncated"].any()
            if row["terminated"].any():
                break
        fallen = row["terminated"]
        assert fallen.any()
        assert (np.abs(row["obs"][fallen, 1]) > 0.2).all()
        assert vector.step(np.ones((3, 1), np.float32))["is_first"][fallen].all()


def test_frames_show_how_the_cart_moves() -> None:
    with closing(make_env(PENDULUM, "rgb_array")) as env:
        env.reset(seed=0)
        first = env.render()
        for _ in range(8):
            env.step(np.ones(1, np.float32))
        frame = env.render()
    assert frame.shape == (240, 320, 3)
    assert frame.std() > 5
    assert (frame != first).any()


def test_an_unknown_env_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no env 'antt'") as caught:
        make_env(EnvConfig(id="brax/antt"))
    assert "ant" in caught.value.fix


def test_copies_of_an_env_share_their_compiled_programs() -> None:
    with closing(make_env(PENDULUM)) as one, closing(make_env(PENDULUM)) as other:
        assert one.unwrapped.task is other.unwrapped.task
        assert max_episode_steps_of(one) == 1000
