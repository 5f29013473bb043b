"""PushT: forms of observation, seeds, success, the time limit."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.specs import flatten_observation
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector, max_episode_steps_of

pytestmark = pytest.mark.needs("pusht")
PUSHT = EnvConfig(id="gym_pusht/PushT-v0")
ACTIONS = make_generator("actions").uniform(0, 512, (30, 2)).astype(np.float32)


@pytest.mark.parametrize(
    ("form", "shapes"),
    [
        ("", {"obs": (5,)}),
        ("state", {"obs": (5,)}),
        ("keypoints", {"obs/agent_pos": (2,), "obs/environment_state": (16,)}),
        ("pixels", {"obs": (96, 96, 3)}),
        ("pixels_state", {"obs/agent_pos": (2,), "obs/pixels": (96, 96, 3)}),
    ],
)
def test_forms_of_observation(form: str, shapes: dict[str, tuple[int, ...]]) -> None:
    specs = make_specs(PUSHT.model_copy(update={"obs": form}))
    assert {key: spec.shape for key, spec in specs.observations.items()} == shapes
    assert specs.action.is_scaled


@pytest.mark.parametrize("form", ["state", "pixels_state"])
def test_an_episode_follows_from_its_seed_alone(form: str) -> None:
    config = PUSHT.model_copy(update={"obs": form})
    with closing(make_env(config, "rgb_array")) as fresh, closing(make_env(config, "rgb_array")) as used:
        used.reset(seed=9)
        used.step(ACTIONS[0])
        pairs = [(fresh.reset(seed=3)[0], used.reset(seed=3)[0])]
        np.testing.assert_array_equal(fresh.render(), used.render())
        pairs += [(fresh.step(action)[0], used.step(action)[0]) for action in ACTIONS]
        for one, other in pairs:
            left, right = (flatten_observation(fresh.observation_space, value) for value in (one, other))
            for key in left:
                np.testing.assert_array_equal(left[key], right[key])


def test_covering_the_outline_terminates_with_success() -> None:
    with closing(make_env(PUSHT)) as env:
        env.reset(seed=0)
        game: Any = env.unwrapped
        game.block.angle, game.block.position = np.pi / 4, (256, 256)
        _, reward, terminated, truncated, info = env.step(np.array([100.0, 100.0], np.float32))
    assert (terminated, truncated, info["success"]) == (True, False, 1.0)
    assert reward == 1.0
    assert info["coverage"] > 0.95


def test_the_time_limit_truncates_and_coverage_is_logged() -> None:
    config = EnvConfig(id=PUSHT.id, vector="sync", log_keys=("success", "coverage"))
    with closing(make_env(PUSHT)) as env:
        assert max_episode_steps_of(env) == 300
    with closing(make_vector(config, seed=1)) as vector:
        vector.reset()
        rows = [vector.step(np.zeros((1, 2), np.float32)) for _ in range(300)]
    assert not any(row["truncated"][0] for row in rows[:-1])
    assert rows[-1]["truncated"][0]
    assert not rows[-1]["terminated"][0]
    assert 0 <= rows[-1]["log/coverage"][0] < 0.95
    assert rows[-1]["log/success"][0] == 0
