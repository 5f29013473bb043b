"""The bridge to envs in JAX: rows equal those of single envs, snapshots are exact, resets happen where they are due."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError, RunError, TrainingError
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector, resolve_vector
from reverie.envs.snapshot import SnapshotVerdict, probe_snapshot

pytestmark = pytest.mark.needs("jax")
COUNTING = EnvConfig(
    id="tests.unit.envs.jax_counting.Counting", max_episode_steps=7, log_keys=("double",), vector="jax", num_envs=5
)


def vector_of(kind: str, num_envs: int = 5, seed: int = 1, **changes: Any) -> Any:
    config = COUNTING.model_copy(update={"vector": kind, "num_envs": num_envs, **changes})
    return make_vector(config, seed, num_envs=num_envs)


def play(vector: Any, steps: int, name: str = "actions") -> list[Row]:
    rng = make_generator(name)
    return [vector.step(vector.specs.action.sample(rng, vector.num_envs)) for _ in range(steps)]


def assert_same(rows: list[Row], others: list[Row]) -> None:
    for one, other in zip(rows, others, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            assert one[key].dtype == other[key].dtype
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_rows_are_those_of_single_envs(num_envs: int) -> None:
    """This env computes nothing that could round differently."""
    rows = []
    for kind in ("jax", "sync"):
        vector = vector_of(kind, num_envs)
        rows.append([vector.reset(), *play(vector, 60), vector.reset(), *play(vector, 20, "more")])
    assert_same(*rows)
    ends = [rows[0][step][flag].any() for step in range(60) for flag in ("terminated", "truncated")]
    assert any(ends[::2])
    assert any(ends[1::2])


def test_an_inactive_env_stays_as_it_is() -> None:
    rows = []
    for kind in ("jax", "sync"):
        vector, action = vector_of(kind, 2), np.zeros((2, 1), np.float32)
        vector.reset()
        vector.step(action)
        own = [vector.step(action, np.array([False, True])) for _ in range(9)]
        rows.append([*own, *play(vector, 20)])
    assert_same(*rows)
    assert rows[0][9]["obs/numbers"][0, 0] == 2


@pytest.mark.parametrize("moment", [0, 3, 7, 20])
def test_a_saved_vector_continues_bit_for_bit(moment: int) -> None:
    vector, restored = vector_of("jax"), vector_of("jax", seed=99)
    vector.reset()
    play(vector, moment)
    state = vector.state()
    expected = play(vector, 40, "after")
    restored.load_state(state)
    restored._seed = 1  # the run's, which the state leaves to the config
    assert restored.check_restored({}) == 0
    assert_same(expected, play(restored, 40, "after"))


def test_a_vector_saved_before_its_first_reset_starts_alike() -> None:
    vector, restored = vector_of("jax"), vector_of("jax")
    unused = vector.state()
    first = vector.reset()
    play(vector, 5)
    restored.load_state(unused)
    vector.load_state(unused)
    assert_same([first, first], [restored.reset(), vector.reset()])


def test_states_of_other_vectors_are_refused() -> None:
    state = vector_of("jax").state()
    with pytest.raises(RunError, match=r"has 5 envs, this run has 4") as caught:
        vector_of("jax", 4).load_state(state)
    assert "env.num_envs=5" in caught.value.fix
    state["moments"].popitem()
    with pytest.raises(RunError, match="another version"):
        vector_of("jax").load_state(state)


def test_auto_takes_it_for_several_bare_copies() -> None:
    config = COUNTING.model_copy(update={"vector": "auto"})
    env = make_env(config)
    assert resolve_vector(config, env) == "jax"
    assert resolve_vector(config.model_copy(update={"num_envs": 1}), env) == "sync"
    assert resolve_vector(config.model_copy(update={"obs": "pixels"}), env) == "sync"


@pytest.mark.parametrize("settings", [{"obs": "pixels"}, {"id": "CartPole-v1"}])
def test_what_it_cannot_do_is_refused_with_a_way_out(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_vector(COUNTING.model_copy(update={"log_keys": (), **settings}), 0)
    assert "env.vector=sync" in caught.value.fix


def test_a_reward_that_is_not_finite_names_its_env() -> None:
    vector = vector_of("jax", kwargs={"reward": float("inf")})
    vector.reset()
    with pytest.raises(TrainingError, match="of env 0 is inf"):
        vector.step(np.zeros((5, 1), np.float32))


def test_snapshots_of_single_envs_and_vectors_are_exact() -> None:
    assert probe_snapshot(COUNTING) == SnapshotVerdict("exact", "", "arrays")
    alone = COUNTING.model_copy(update={"vector": "sync"})
    assert probe_snapshot(alone) == SnapshotVerdict("exact", "", "replay")


def test_worker_processes_give_the_same_rows_beside_jax_and_torch() -> None:
    """JAX and torch have threads here: a forked worker could wait for ever."""
    import torch

    torch.ones(300, 300) @ torch.ones(300, 300)
    here = vector_of("jax", 4)
    there = vector_of("process", 4, workers=2)
    try:
        assert_same([here.reset(), *play(here, 30)], [there.reset(), *play(there, 30)])
    finally:
        there.close()


def test_jax_has_as_many_threads_as_the_run() -> None:
    """XLA names the threads of its pool; how many there are is decided at its start."""
    script = """
import os
from reverie.envs.jax_setup import choose_threads, start_jax
before = dict(os.environ)
choose_threads({threads})
jax = start_jax()
(jax.numpy.ones((64, 64)) @ jax.numpy.ones((64, 64))).block_until_ready()
names = [open(f"/proc/self/task/{{task}}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(sum("XLAEigen" in name for name in names), os.environ.get("NPROC") == before.get("NPROC"))
"""
    for threads in (1, 3):
        done = subprocess.run(
            [sys.executable, "-c", script.format(threads=threads)], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(threads), "True"]


def test_frames_show_the_current_state() -> None:
    env = make_env(COUNTING, "rgb_array")
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
    assert (env.render() == 3).all()
