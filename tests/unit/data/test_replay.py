"""The replay buffer on rows whose observation is (env, time), on real envs, and through real checkpoint files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Read, Rollout, Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Clock, Mode, Row, State, WriteBack
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.data.rows import stack_rows, transitions
from reverie.envs.config import EnvConfig
from reverie.envs.vector import SyncVector
from reverie.store.trees import SealedStore, read_tree, write_tree
from tests.checking import CheckingAlgorithm

SPECS = Specs({"obs": ObservationSpec((2,), "float32", "vector")}, ActionSpec("discrete", (), "int64", (9,)))
LENGTHS = (3, 5)
"""Rows of an episode in env 0, which end by termination, and in env 1, which are cut."""
READS = [Transitions(16), Transitions(16, 3), Window(8, 6), Window(8, 4, pad_before=1, pad_after=2)]


def make_row(time: int) -> Row:
    place = np.array([time % length for length in LENGTHS])
    last = place == np.array(LENGTHS) - 1
    return {
        "obs": np.array([[env, time] for env in range(2)], np.float32),
        "reward": place.astype(np.float32),
        "is_first": place == 0,
        "terminated": last & np.array([True, False]),
        "truncated": last & np.array([False, True]),
        "action": np.array([time % 9, (time + 1) % 9]),
        "value": np.full(2, time + 0.5, np.float32),
    }


def make_buffer(steps: int, **settings: Any) -> ReplayBuffer:
    settings = {"capacity": 64, "chunk_rows": 8, **settings}
    buffer = ReplayBuffer(ReplayBuffer.Config(**settings), SPECS, num_envs=2)
    for time in range(steps):
        buffer.add(make_row(time))
    return buffer


def sample(buffer: ReplayBuffer, read: Read, name: object = 0) -> Row:
    return buffer.sample(read, {}, make_generator(name))


def assert_same(one: Row, other: Row) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def through_files(state: State, folder: Path) -> State:
    """What a checkpoint would give back."""
    store = SealedStore(folder / "sealed")
    write_tree(folder / "buffer", state, store)
    return read_tree(folder / "buffer", store)


@pytest.mark.parametrize("read", READS)
def test_a_batch_holds_what_was_added(read: Transitions | Window) -> None:
    buffer = make_buffer(100)
    batch = sample(buffer, read)
    steps = read.n + 1 if isinstance(read, Transitions) else read.length
    assert batch["obs"].shape == (read.batch_size, steps, 2)
    env, time = batch["obs"][..., 0].astype(int), batch["obs"][..., 1].astype(int)
    real = batch["valid"]
    assert batch["id"].dtype == np.int64
    np.testing.assert_array_equal(batch["id"], np.where(real, time * 2 + env, -1))
    assert batch["id"].max() < 200
    assert (env == env[:, :1]).all()
    assert (np.diff(time, axis=1)[real[:, 1:] & real[:, :-1]] == 1).all()
    for key, column in stack_rows([make_row(t) for t in range(100)], axis=0).items():
        np.testing.assert_array_equal(batch[key], column[time, env], err_msg=key)
        assert batch[key].dtype == column.dtype


def test_transitions_are_padded_behind_the_end_of_their_episode() -> None:
    batch = sample(make_buffer(30), Transitions(64, 3))
    weight = transitions(batch).weight
    for row, place in enumerate(batch["reward"][:, 0].astype(int)):
        steps = min(3, LENGTHS[int(batch["obs"][row, 0, 0])] - 1 - place)
        assert weight[row].tolist() == [1.0] * steps + [0.0] * (3 - steps)
        assert batch["valid"][row].tolist() == [True] * (steps + 1) + [False] * (3 - steps)
        assert (batch["obs"][row, steps:] == batch["obs"][row, steps]).all()  # the final row is repeated
    assert set(weight.sum(axis=1)) == {1, 2, 3}


def test_windows_run_on_over_the_ends_of_episodes() -> None:
    batch = sample(make_buffer(30), Window(16, 10))
    assert batch["valid"].all()
    assert (batch["is_first"].sum(axis=1) >= 2).all()


def test_padded_windows_hold_one_episode() -> None:
    batch = sample(make_buffer(30), Window(200, 4, pad_before=1, pad_after=2))
    seen = set()
    for env, rewards, valid in zip(batch["obs"][:, 0, 0], batch["reward"], batch["valid"], strict=True):
        assert np.diff(rewards[valid]).tolist() == [1] * (valid.sum() - 1)
        seen.add((int(env), tuple(valid.tolist()), tuple(rewards.astype(int).tolist())))
    assert seen == {
        (0, (False, True, True, True), (0, 0, 1, 2)),
        (0, (True, True, True, False), (0, 1, 2, 2)),
        (0, (True, True, False, False), (1, 2, 2, 2)),
        (1, (False, True, True, True), (0, 0, 1, 2)),
        (1, (True, True, True, True), (0, 1, 2, 3)),
        (1, (True, True, True, True), (1, 2, 3, 4)),
        (1, (True, True, True, False), (2, 3, 4, 4)),
        (1, (True, True, False, False), (3, 4, 4, 4)),
    }


def test_more_padding_than_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="padding"):
        sample(make_buffer(30), Window(4, 3, pad_before=1, pad_after=2))


def test_a_gap_parts_transitions_but_not_windows() -> None:
    buffer = make_buffer(4)
    for time in range(15, 17):  # both envs start anew; env 1 was in the middle of an episode
        buffer.add(make_row(time))
    pairs = sample(buffer, Transitions(200))["obs"][:, :, 1]
    assert [3, 15] not in pairs.tolist()
    assert {tuple(pair) for pair in pairs.tolist()} == {(0, 1), (1, 2), (2, 3), (15, 16)}
    assert [2, 3, 15, 16] in sample(buffer, Window(100, 4))["obs"][:, :, 1].tolist()


def test_rows_that_do_not_count_are_never_served_as_valid() -> None:
    buffer = make_buffer(0)
    for time in range(15):
        buffer.add({**make_row(time), "valid": np.array([time < 6, True])})
    starts = sample(buffer, Transitions(200))["obs"][:, 0]
    assert starts[starts[:, 0] == 0, 1].max() == 4
    assert starts[starts[:, 0] == 1, 1].max() == 13
    windows = sample(buffer, Window(200, 6))
    np.testing.assert_array_equal(windows["valid"], (windows["obs"][..., 0] == 1) | (windows["obs"][..., 1] < 6))
    assert windows["valid"][:, 0].all()
    assert not windows["valid"].all()


def test_at_least_the_capacity_is_kept() -> None:
    buffer = make_buffer(0)
    for time in range(200):
        buffer.add(make_row(time))
        assert min(64, 2 * (time + 1)) <= len(buffer) <= 64 + 8


@pytest.mark.parametrize(("capacity", "chunk_rows", "chunk_steps"), [(64, 8, 4), (64, 8192, 4), (3, 5, 1), (1, 1, 1)])
def test_chunks_are_a_small_part_of_the_capacity(capacity: int, chunk_rows: int, chunk_steps: int) -> None:
    buffer = make_buffer(50, capacity=capacity, chunk_rows=chunk_rows)
    assert buffer.rows.chunk_steps == chunk_steps
    assert len(buffer) >= capacity
    assert buffer.can_sample(Transitions(1))


@pytest.mark.parametrize("through", ["memory", "files"])
@pytest.mark.parametrize("steps", [0, 3, 4, 10, 36, 37, 101])
def test_a_restored_buffer_gives_the_same_samples(steps: int, through: str, tmp_path: Path) -> None:
    buffer = make_buffer(steps)
    if steps:
        ids = buffer.rows.ids[::3]
        buffer.write_back(WriteBack(ids, {"priority": np.sqrt(ids).astype(np.float32)}))
    state = buffer.state()
    copy = make_buffer(7)
    copy.load_state(through_files(state, tmp_path) if through == "files" else state)
    for time in range(steps, steps + 50):
        buffer.add(make_row(time))
        copy.add(make_row(time))
        assert len(copy) == len(buffer)
        assert copy.memory_bytes == buffer.memory_bytes
        for read in READS:
            assert copy.can_sample(read) == buffer.can_sample(read)
            if buffer.can_sample(read):
                assert_same(sample(copy, read, time), sample(buffer, read, time))


def test_saving_again_writes_only_what_is_new(tmp_path: Path) -> None:
    def sealed_files() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "sealed").iterdir()}

    buffer = make_buffer(30)
    through_files(buffer.state(), tmp_path)
    before = sealed_files()
    assert len(before) == 7
    for time in range(30, 34):
        buffer.add(make_row(time))
    copy = make_buffer(0)
    copy.load_state(through_files(buffer.state(), tmp_path))
    through_files(copy.state(), tmp_path)
    after = sealed_files()
    assert len(after) == 8
    assert before.items() <= after.items()


@pytest.mark.parametrize("steps", [3, 30])
def test_columns_keep_their_order_through_files(steps: int, tmp_path: Path) -> None:
    """Networks join observations in the order of the batch, so another order would give other bits."""
    buffer, copy = make_buffer(steps), make_buffer(0)
    copy.load_state(through_files(buffer.state(), tmp_path))
    assert copy.rows.keys == buffer.rows.keys == ["valid", *make_row(0)]


def test_metrics_tell_how_the_buffer_is_used(tmp_path: Path) -> None:
    buffer = make_buffer(0)
    assert buffer.metrics() == {"fill": 0, "age": 0, "samples_per_insert": 0}
    for time in range(16):
        buffer.add(make_row(time))
    batch = sample(buffer, Transitions(16, 3))
    age = 2 * np.mean(15 - batch["id"][:, 0] // 2)
    assert buffer.metrics() == {"fill": 0.5, "age": pytest.approx(age), "samples_per_insert": 0.5}
    sample(buffer, Window(8, 6))
    assert buffer.metrics()["samples_per_insert"] == 2  # 16 transitions and 8 windows of 6 rows, of 32 rows
    copy = make_buffer(0)
    copy.load_state(through_files(buffer.state(), tmp_path))
    assert copy.metrics() == buffer.metrics()
    for time in range(16, 100):
        buffer.add(make_row(time))
    assert buffer.metrics()["fill"] == 1


def test_saving_changes_nothing() -> None:
    buffer, other = make_buffer(0), make_buffer(0)
    states = []
    for time in range(100):
        buffer.add(make_row(time))
        other.add(make_row(time))
        if time % 7 == 0:
            states.append(buffer.state())
    assert_same(sample(buffer, Window(8, 6)), sample(other, Window(8, 6)))
    early = make_buffer(0)
    early.load_state(states[1])  # its chunks were all overwritten since
    assert_same(sample(early, Window(8, 3)), sample(make_buffer(8), Window(8, 3)))


def test_what_is_written_back_is_sampled_later() -> None:
    buffer = make_buffer(20)
    batch = sample(buffer, Transitions(8, 3))
    assert "latent" not in batch
    latent = np.stack([batch["id"], batch["id"] + 0.5], axis=-1).astype(np.float32)
    buffer.write_back(WriteBack(batch["id"], {"latent": latent}))
    written = set(batch["id"][batch["valid"]].tolist())
    later = sample(buffer, Window(100, 4))
    assert later["latent"].shape == (100, 4, 2)
    is_written = np.isin(later["id"], list(written))
    np.testing.assert_array_equal(later["latent"][..., 0], np.where(is_written, later["id"], 0))
    assert is_written.any()
    assert not is_written.all()


def noted_row(time: int) -> Row:
    notes = np.array([[time, env] for env in range(2)], np.float32)
    return {**make_row(time), "note/state": notes / 8, "note/class": notes.astype(np.uint8)}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_notes_come_with_their_rows_until_they_are_replaced(dtype: str, tmp_path: Path) -> None:
    buffer = make_buffer(0, annotation_dtype=dtype)
    for time in range(50):  # the ring came round
        buffer.add(noted_row(time))
    batch = sample(buffer, Window(8, 6))
    np.testing.assert_array_equal(batch["note/state"] * 8, batch["obs"][..., ::-1])
    np.testing.assert_array_equal(batch["note/class"], batch["obs"][..., ::-1])
    assert (batch["note/state"].dtype, batch["note/class"].dtype) == (np.float32, np.uint8)
    assert buffer.annotations.keys == ["note/state", "note/class"]
    row = batch["id"][0, 0]
    buffer.write_back(WriteBack(np.array([row]), {"note/state": np.array([[0.5, 0.25]], np.float32)}))
    restored = make_buffer(0, annotation_dtype=dtype)
    restored.load_state(through_files(buffer.state(), tmp_path))
    for kept in (buffer, restored):
        again = sample(kept, Window(8, 6))
        assert again["note/state"][0, 0].tolist() == [0.5, 0.25]
        np.testing.assert_array_equal(again["note/class"], batch["note/class"])


def test_the_forecast_knows_that_notes_are_annotations() -> None:
    buffer = make_buffer(0, annotation_dtype="float16")
    plain = forecast_buffer(buffer.config, ExpectedRows(SPECS, 2)).memory
    notes = {key: value for key, value in noted_row(0).items() if key.startswith("note/")}
    assert forecast_buffer(buffer.config, ExpectedRows(SPECS, 2, notes)).memory - plain == buffer.rows.capacity_rows * (
        2 * 2 + 2 * 1
    )


def test_context_comes_ahead_of_a_window_and_does_not_count_as_replayed() -> None:
    buffer = make_buffer(20)
    read = Window(8, 6, context=2)
    batch = sample(buffer, read)
    assert batch["obs"].shape == (8, 8, 2)
    assert (np.diff(batch["obs"][..., 1], axis=1) == 1).all()
    assert read.rows == buffer.usage.served == 48


def test_annotations_are_dropped_with_their_rows() -> None:
    buffer = make_buffer(36)  # full
    old_ids = buffer.rows.ids
    buffer.write_back(WriteBack(old_ids, {"priority": np.ones(len(old_ids), np.float32)}))
    for time in range(36, 50):
        buffer.add(make_row(time))
    buffer.write_back(WriteBack(old_ids[:2], {"priority": np.full(2, 9, np.float32)}))  # rows that are gone
    batch = sample(buffer, Window(200, 1))
    np.testing.assert_array_equal(batch["priority"], (batch["id"] < 72).astype(np.float32))
    assert set(batch["priority"].ravel()) == {0, 1}


def test_clearing_forgets_rows_and_annotations() -> None:
    buffer = make_buffer(20)
    buffer.write_back(WriteBack(np.arange(4), {"priority": np.ones(4)}))
    buffer.clear()
    assert len(buffer) == buffer.memory_bytes == 0
    assert not buffer.can_sample(Transitions(4))
    for time in range(5):
        buffer.add(make_row(time))
    batch = sample(buffer, Window(4, 2))
    assert "priority" not in batch
    assert batch["id"].min() >= 40  # no id means two rows


def test_can_sample_once_there_is_enough() -> None:
    assert not make_buffer(0).can_sample(Transitions(4))
    assert not make_buffer(1).can_sample(Transitions(4))
    assert make_buffer(2).can_sample(Transitions(4))
    assert not make_buffer(2).can_sample(Transitions(4, 3))
    assert make_buffer(3).can_sample(Transitions(4, 3))  # the first episode of env 0 ended
    assert not make_buffer(5).can_sample(Window(4, 6))
    assert make_buffer(6).can_sample(Window(4, 6))


def test_nothing_is_sampled_below_min_rows() -> None:
    early, enough = make_buffer(9, min_rows=20), make_buffer(10, min_rows=20)
    assert not early.can_sample(Transitions(4))
    assert enough.can_sample(Transitions(4))
    with pytest.raises(TrainingError, match="min_rows"):
        sample(early, Transitions(4))


def test_a_read_that_empties_the_buffer_is_refused() -> None:
    buffer = make_buffer(20)
    assert not buffer.can_sample(Rollout())
    with pytest.raises(ConfigError, match="rollout buffer"):
        sample(buffer, Rollout())


def test_the_config() -> None:
    assert ReplayBuffer.Config.model_validate({"capacity": 1e6}).capacity == 1_000_000
    with pytest.raises(ValidationError, match="min_rows"):
        ReplayBuffer.Config(capacity=10, min_rows=11)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_forecast_is_what_a_full_buffer_takes(dtype: str) -> None:
    buffer = make_buffer(36, annotation_dtype=dtype)
    latent = {"latent": np.ones((2, 3), np.float32)}
    buffer.write_back(WriteBack(buffer.rows.ids[:2], latent))
    # obs 8, reward 4, four flags 4, as bits and in one more byte 2, action 8, value 4, and the latent
    assert buffer.memory_bytes == 72 * (30 + 3 * np.dtype(dtype).itemsize)
    extras = {"value": np.zeros(2, np.float32)}
    assert forecast_buffer(buffer.config, ExpectedRows(SPECS, 2, extras, latent)).memory == buffer.memory_bytes


def make_stacking(wrappers: list[dict[str, Any]], frames: int, env: str = "Reverie/Motion-v0", **kwargs: Any) -> tuple:
    config = EnvConfig.model_validate({"id": env, "wrappers": wrappers, "max_episode_steps": 5, "kwargs": kwargs})
    vector = SyncVector(config, 3, "collect", 2)
    settings = ReplayBuffer.Config(capacity=64, chunk_rows=8, stacked_frames=frames)
    return vector, ReplayBuffer(settings, vector.specs, 2)


@pytest.mark.parametrize(
    ("frames", "env", "kwargs"),
    [
        (4, "Reverie/Motion-v0", {}),
        (2, "Reverie/Motion-v0", {}),
        (3, "Reverie/Counting-v0", {"observation": "dict", "varied": True, "length": 4}),
    ],
)
def test_stacks_are_what_the_wrapper_gave(frames: int, env: str, kwargs: dict[str, Any]) -> None:
    vector, buffer = make_stacking([{"kind": "frame_stack", "frames": frames}], frames, env, **kwargs)
    rng, row, rows = make_generator("actions"), vector.reset(), []
    for time in range(90):
        action = vector.specs.action.sample(rng, 2)
        rows.append({**row, "action": action})
        buffer.add(rows[-1])
        row = vector.reset() if time == 47 else vector.step(action)  # also over a gap
        if time < 4 or 8 < time % 48 < 40:  # at first, around the gap, and after wrapping around
            continue
        added = stack_rows(rows, axis=0)
        for read in [Transitions(16, 2), Window(16, 5), Window(16, 3, pad_before=1, pad_after=1)]:
            batch = sample(buffer, read, time)
            steps, envs = np.divmod(batch["id"], 2)
            for key in vector.specs.observations:
                assert batch[key].dtype == added[key].dtype
                real = batch["valid"]
                np.testing.assert_array_equal(batch[key][real], added[key][steps, envs][real])
                last = real.cumsum(axis=1).argmax(axis=1)  # padding behind it shows the last real row again
                np.testing.assert_array_equal(batch[key][:, -1], batch[key][np.arange(16), last])
    assert buffer.rows.oldest > 0
    assert buffer.rows.gather(np.array([100]))[key].shape[-1] * frames == vector.specs.observations[key].shape[-1]
    extras = {"log": np.zeros((2, 0))}
    forecast = forecast_buffer(buffer.config, ExpectedRows(vector.specs, 2, extras)).memory
    assert forecast == buffer.memory_bytes // len(buffer) * buffer.rows.capacity_rows


def test_observations_that_are_no_stacks_are_refused() -> None:
    with pytest.raises(ConfigError, match="not a stack of 4"):
        make_stacking([], 4)
    with pytest.raises(ConfigError, match="not a stack of 4"):
        make_stacking([], 4, "Reverie/Counting-v0", observation="discrete")
    vector, buffer = make_stacking([], 4, "Reverie/Counting-v0")  # four numbers, but not four times the same
    with pytest.raises(ConfigError, match="stacked_frames"):
        buffer.add({**vector.reset(), "action": np.zeros(2, np.int64)})


def test_the_checking_agent_finds_nothing_wrong() -> None:
    kwargs = {"length": 5, "varied": True}
    vector = SyncVector(EnvConfig(id="Reverie/Counting-v0", kwargs=kwargs), 1, "collect", 3)
    rng = make_generator("sampling")
    algorithm = CheckingAlgorithm(CheckingAlgorithm.Config(batch_size=8), vector.specs, rng)
    buffer = ReplayBuffer(ReplayBuffer.Config(capacity=120, chunk_rows=12), vector.specs, 3)
    carry, arriving, previous = algorithm.initial_carry(3), vector.reset(), np.zeros(3, np.int64)
    last_visit: dict[int, int] = {}
    for _ in range(120):
        now = {**arriving, "previous_action": previous}
        previous, carry, extras = algorithm.act(now, carry, Clock(), rng, Mode.COLLECT)
        buffer.add({**arriving, "action": previous, **extras})
        arriving = vector.step(previous)
        read = algorithm.reads["update_windows"]
        if not buffer.can_sample(read):
            continue
        batch = buffer.sample(read, arriving, rng)
        if last_visit:
            expected = [last_visit.get(row, 0) for row in batch["id"].ravel().tolist()]
            assert batch["visits"].ravel().tolist() == expected
        update = algorithm.update_windows(batch, Clock(), rng)
        assert update.write_back is not None
        buffer.write_back(update.write_back)
        last_visit |= dict.fromkeys(batch["id"].ravel().tolist(), algorithm.calls["update_windows"])
    assert algorithm.calls["update_windows"] == 115
    assert buffer.rows.oldest > 0
