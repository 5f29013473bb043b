"""Every suite: random steps, a frame, memory, the declared snapshots, and a short training."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie import api
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector
from reverie.envs.snapshot import probe_snapshot
from reverie.envs.suites import find_suite

WARM_UP_EPISODES, WARM_UP_STEPS, STEPS = 4, 200, 1000
MOST_GROWTH_BYTES = 5 << 20
EXAMPLES = {
    "memory-maze": "memory_maze/9x9",
    "bsuite": "bsuite/catch/0",
    "procgen": "procgen/coinrun",
    "pusht": "gym_pusht/PushT-v0",
    "retro": "Retro/Airstriker-Genesis-v0",
    "vizdoom": "VizdoomBasic-v1",
}
"""An env of each suite, by the extra that it needs."""
SMALL = [
    "env.num_envs=2", "env.max_episode_steps=20", "algorithm.batch_size=16", "algorithm.epochs=1",
    "phases.learn.collect.rows=32", "phases.learn.evaluate={episodes: 1, every_steps: 64}", "evaluate.final_episodes=1",
]  # fmt: skip


def example(extra: str) -> Any:
    return pytest.param(EXAMPLES[extra], marks=pytest.mark.needs(extra), id=extra)


each_suite = pytest.mark.parametrize("env_id", [example(extra) for extra in EXAMPLES])


@each_suite
def test_random_steps_show_something_and_do_not_fill_the_memory(env_id: str) -> None:
    with closing(make_vector(EnvConfig(id=env_id, vector="sync"), seed=1)) as vector:
        for _ in range(WARM_UP_EPISODES):
            vector.reset()
        rng = make_generator("actions")
        for _ in range(WARM_UP_STEPS):
            vector.step(vector.specs.action.sample(rng, 1))
        before = resident_bytes()
        for _ in range(STEPS):
            row = vector.step(vector.specs.action.sample(rng, 1))
            assert not (row["terminated"] & row["truncated"]).any()
        assert resident_bytes() - before < MOST_GROWTH_BYTES


@each_suite
def test_a_frame_is_not_black(env_id: str) -> None:
    with closing(make_env(EnvConfig(id=env_id), "rgb_array")) as env:
        env.reset(seed=0)
        for _ in range(5):
            env.step(env.action_space.sample())
        frame = np.asarray(env.render())
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.std() > 5


@each_suite
def test_snapshots_are_as_declared(env_id: str) -> None:
    suite = find_suite(env_id)
    assert suite is not None
    verdict = probe_snapshot(EnvConfig(id=env_id))
    assert verdict.kind == suite.snapshots, verdict
    assert verdict.method != "unchecked", verdict


@each_suite
def test_a_short_training(env_id: str, tmp_path: Path) -> None:
    run = api.train(f"{env_id}:ppo", *SMALL, seed=1, steps=64, runs_dir=tmp_path)
    assert run.exit_code == 0
    assert run.path.joinpath("scores.jsonl").read_text().count("episode") >= 2


def resident_bytes() -> int:
    """Memory of this process that is not swapped out."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
