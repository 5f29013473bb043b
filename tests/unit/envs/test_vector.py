"""Sync and process vectors: the same rows, the same states, whichever continues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.contracts import Vector
from reverie.core.errors import RunError, TrainingError
from reverie.core.rng import make_generator
from reverie.core.types import Row, State
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_vector

KINDS = [
    *({"observation": kind} for kind in ("vector", "image", "dict", "tuple", "discrete")),
    *(
        {"action": kind, "start": 1}
        for kind in ("discrete", "continuous", "unbounded", "multi_discrete", "multi_binary", "mixed")
    ),
]
CONFIGS = [
    EnvConfig(id="CartPole-v1"),
    EnvConfig(id="Pendulum-v1", max_episode_steps=30),
    EnvConfig(id="Reverie/Motion-v0"),
    *(
        EnvConfig(id="Reverie/Counting-v0", kwargs={"varied": True, "length": 6, **kind}, log_keys=("success",))
        for kind in KINDS
    ),
    pytest.param(EnvConfig(id="LunarLander-v3"), marks=pytest.mark.needs("box2d")),
]


def _name(config: Any) -> str:
    return "-".join([config.id, *map(str, config.kwargs.values())])


def _make(config: EnvConfig, vector: str, num_envs: int = 3) -> Vector:
    return make_vector(config.model_copy(update={"vector": vector, "workers": 2}), 11, num_envs=num_envs)


def _play(vector: Vector, steps: int, purpose: str = "first") -> list[Row]:
    rng = make_generator(purpose)
    return [vector.step(vector.specs.action.sample(rng, vector.num_envs)) for _ in range(steps)]


def _assert_same(left: list[Row], right: list[Row]) -> None:
    for step, (one, other) in enumerate(zip(left, right, strict=True)):
        assert list(one) == list(other)
        for key in one:
            assert (one[key].dtype, one[key].shape) == (other[key].dtype, other[key].shape), key
            assert one[key].tobytes() == other[key].tobytes(), f"{key} at step {step}"


def _assert_same_state(left: State, right: State) -> None:
    assert list(left) == list(right)
    for index in left:
        assert list(left[index]) == list(right[index])
        assert {**left[index], "actions": left[index]["actions"].tolist()} == {
            **right[index],
            "actions": right[index]["actions"].tolist(),
        }


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
def test_rows_fit_the_specs(config: EnvConfig) -> None:
    vector = _make(config, "sync")
    for row in [vector.reset(), *_play(vector, 3)]:
        for key, spec in vector.specs.observations.items():
            assert (row[key].shape, row[key].dtype) == ((3, *spec.shape), spec.dtype)
        assert row["reward"].dtype == np.float32
        assert all(row[key].dtype == bool for key in ("is_first", "terminated", "truncated"))
    vector.close()


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
def test_a_saved_sync_vector_continues_bit_for_bit(config: EnvConfig) -> None:
    vector = _make(config, "sync")
    vector.reset()
    _play(vector, 37)
    state = vector.state()
    restored = _make(config, "sync")
    restored.load_state(state)
    _assert_same(_play(vector, 150, "second"), _play(restored, 150, "second"))


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[1], CONFIGS[5], CONFIGS[9], CONFIGS[-1]])
def test_sync_and_process_agree_and_take_over_from_each_other(config: EnvConfig) -> None:
    sync, process = _make(config, "sync"), _make(config, "process")
    try:
        _assert_same([sync.reset()], [process.reset()])
        _assert_same(_play(sync, 60), _play(process, 60))
        sync_state, process_state = sync.state(), process.state()
        _assert_same_state(sync_state, process_state)
        other_sync = _make(config, "sync")
        other_sync.load_state(process_state)
        process.reset()
        process.load_state(sync_state)
        expected = _play(sync, 60, "second")
        _assert_same(expected, _play(other_sync, 60, "second"))
        _assert_same(expected, _play(process, 60, "second"))
    finally:
        process.close()


def test_envs_and_streams_see_different_episodes() -> None:
    config = EnvConfig(id="CartPole-v1", vector="sync", num_envs=3)
    collect, evaluate = (make_vector(config, 0, stream).reset()["obs"] for stream in ("collect", "evaluate"))
    assert len({row.tobytes() for row in np.concatenate([collect, evaluate])}) == 6


@pytest.mark.parametrize("kind", ["sync", "process"])
def test_a_step_before_the_first_reset_resets(kind: str) -> None:
    config = EnvConfig(id="CartPole-v1")
    vector, expected = _make(config, kind), _make(config, "sync").reset()
    _assert_same([expected], _play(vector, 1))
    vector.close()


def test_every_row_is_fresh_memory() -> None:
    vector = _make(EnvConfig(id="CartPole-v1"), "sync")
    first = vector.reset()
    kept = first["obs"].copy()
    _play(vector, 2)
    assert first["obs"].tobytes() == kept.tobytes()


def test_a_saved_vector_needs_as_many_envs() -> None:
    config = EnvConfig(id="CartPole-v1")
    state = _make(config, "sync", 2).state()
    with pytest.raises(RunError, match=r"env\.num_envs=2"):
        _make(config, "sync", 3).load_state(state)


def test_a_failing_env_is_told_in_its_own_words() -> None:
    vector = _make(EnvConfig(id="Reverie/Counting-v0", kwargs={"crash_at": 2}), "sync")
    vector.reset()
    with pytest.raises(TrainingError, match="crash_at is 2") as caught:
        _play(vector, 2)
    assert "counting.py, line " in caught.value.fix


def test_a_vector_can_be_drawn() -> None:
    from reverie.envs.vector import SyncVector

    vector = SyncVector(EnvConfig(id="Reverie/Motion-v0"), 0, "evaluate", 2, render_mode="rgb_array")
    rows = vector.reset()
    assert np.array_equal(vector.render(1)[..., :1], rows["obs"][1])


@pytest.mark.parametrize("kind", ["sync", "process", "native"])
def test_an_env_that_rests_gives_blank_rows_and_keeps_its_next_episode(kind: str) -> None:
    config = EnvConfig(id="CartPole-v1")
    vector, action = _make(config, kind, 2), np.zeros(2, np.int64)
    try:
        row = vector.reset()
        while not (row["terminated"][0] and not row["terminated"][1]):
            row = vector.step(np.array([0, row["obs"][1, 2] > 0]))
        rows = [vector.step(action, np.array([False, True])) for _ in range(3)]
        after = vector.step(action)
    finally:
        vector.close()
    for row in rows:
        assert row["is_first"].tolist() == [True, False]
        assert not any(row[key][0].any() for key in ("obs", "reward", "terminated", "truncated"))
        assert row["reward"][1] == 1
    assert bool(after["is_first"][0]) == (kind != "native")


@pytest.mark.parametrize("kind", ["sync", "process"])
def test_restored_envs_that_show_something_else_begin_new_episodes(kind: str) -> None:
    """Env 0 is what the agent saw; env 1 is not, be it that a seed does not decide it or that it was changed."""
    config = EnvConfig(id="Reverie/Counting-v0", kwargs={"length": 50}, log_keys=("steps",))
    saved, restored, untouched = _make(config, "sync", 2), _make(config, kind, 2), _make(config, "sync", 2)
    saved.reset()
    now = _play(saved, 5)[-1]
    state = saved.state()
    try:
        untouched.load_state(state)
        assert untouched.check_restored(now) == 0
        restored.load_state(state)
        other = {key: values.copy() for key, values in now.items()}
        other["obs"][1] += 1
        assert restored.check_restored(other) == 1
        rows, same = _play(restored, 3, "next"), _play(untouched, 3, "next")
    finally:
        restored.close()
    _assert_same(
        [{key: row[key][:1] for key in row} for row in rows], [{key: row[key][:1] for key in row} for row in same]
    )
    assert rows[0]["obs"][1].tolist() == other["obs"][1].tolist()
    assert [bool(rows[0][key][1]) for key in ("is_first", "terminated", "truncated")] == [False, False, True]
    assert rows[0]["reward"][1] == rows[0]["log/steps"][1] == 0
    assert [bool(row["is_first"][1]) for row in rows] == [False, True, False]
