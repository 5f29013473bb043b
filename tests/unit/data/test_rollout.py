"""The rollout buffer on rows whose observation is (env, time) and whose extra is time as well."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Episodes, Rollout, Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row, WriteBack
from reverie.data.memory_forecast import ExpectedRows
from reverie.data.rollout import RolloutBuffer

SPECS = Specs({"obs": ObservationSpec((2,), "float32", "vector")}, ActionSpec("discrete", (), "int64", (9,)))
LENGTHS = (3, 5)
"""Rows of an episode in env 0 and env 1."""
RNG = make_generator("unused")


def arriving_row(time: int) -> Row:
    place = np.array([time % length for length in LENGTHS])
    last = place == np.array(LENGTHS) - 1
    return {
        "obs": np.array([[env, time] for env in range(2)], np.float32),
        "reward": place.astype(np.float32),
        "is_first": place == 0,
        "terminated": last & np.array([True, False]),
        "truncated": last & np.array([False, True]),
        "log/steps": np.full(2, time, np.float32),
    }


def full_row(time: int) -> Row:
    done = np.array([time % 9, (time + 1) % 9])
    return {**arriving_row(time), "action": done, "value": np.full(2, time + 0.5, np.float32)}


def make_buffer(*times: int) -> RolloutBuffer:
    buffer = RolloutBuffer(RolloutBuffer.Config(), SPECS, num_envs=2)
    for time in times:
        buffer.add(full_row(time))
    return buffer


def times_of(batch: Row) -> list[list[int]]:
    """When the valid rows of each entry were collected."""
    valid = batch.get("valid", np.ones(batch["reward"].shape, bool))
    return [batch["obs"][i, valid[i], 1].astype(int).tolist() for i in range(len(valid))]


def assert_same(one: Row, other: Row) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype
        np.testing.assert_array_equal(one[key], other[key])


def test_a_rollout_ends_with_the_arriving_row() -> None:
    batch = make_buffer(0, 1, 2, 3).sample(Rollout(), arriving_row(4), RNG)
    assert batch["obs"].shape == (2, 5, 2)
    assert times_of(batch) == [[0, 1, 2, 3, 4]] * 2
    assert batch["obs"][:, :, 0].tolist() == [[0.0] * 5, [1.0] * 5]
    assert batch["action"].tolist() == [[0, 1, 2, 3, 0], [1, 2, 3, 4, 0]]
    assert batch["value"].tolist() == [[0.5, 1.5, 2.5, 3.5, 0.0]] * 2
    assert batch["log/steps"].tolist() == [[0, 1, 2, 3, 4]] * 2
    assert batch["is_first"].tolist() == [[True, False, False, True, False], [True] + [False] * 4]
    assert batch["truncated"].tolist() == [[False] * 5, [False] * 4 + [True]]
    assert batch["action"].dtype == np.int64
    assert "valid" not in batch


def test_what_only_arrives_is_not_part_of_the_batch() -> None:
    arriving = {**arriving_row(1), "previous_action": np.zeros(2, np.int64)}
    assert "previous_action" not in make_buffer(0).sample(Rollout(), arriving, RNG)


def test_reading_empties() -> None:
    buffer = make_buffer(0, 1)
    assert buffer.can_sample(Rollout())
    buffer.sample(Rollout(), arriving_row(2), RNG)
    assert not buffer.can_sample(Rollout())
    assert len(buffer) == buffer.memory_bytes == 0
    buffer.add(full_row(2))
    assert times_of(buffer.sample(Rollout(), arriving_row(3), RNG)) == [[2, 3]] * 2


def test_episodes_come_whole_in_the_order_they_ended() -> None:
    batch = make_buffer(*range(7)).sample(Episodes(), arriving_row(7), RNG)
    assert times_of(batch) == [[0, 1, 2], [0, 1, 2, 3, 4], [3, 4, 5]]
    assert batch["obs"].shape == (3, 5, 2)
    assert batch["obs"][:, 0, 0].tolist() == [0, 1, 0]  # envs
    assert batch["valid"].sum(axis=1).tolist() == [3, 5, 3]
    assert batch["terminated"].tolist()[0] == [False, False, True, False, False]
    assert batch["value"].tolist()[2] == [3.5, 4.5, 5.5, 0, 0]


def test_unfinished_episodes_wait_for_their_end() -> None:
    buffer = make_buffer(*range(7))
    buffer.sample(Episodes(), arriving_row(7), RNG)
    assert not buffer.can_sample(Episodes())
    assert len(buffer) == 4  # rows 5 and 6, both envs: env 1 began its second episode at 5
    for time in (7, 8):
        buffer.add(full_row(time))
    assert times_of(buffer.sample(Episodes(), arriving_row(9), RNG)) == [[6, 7, 8]]
    buffer.add(full_row(9))
    assert times_of(buffer.sample(Episodes(), arriving_row(10), RNG)) == [[5, 6, 7, 8, 9]]


def test_an_episode_whose_start_is_gone_is_left_out() -> None:
    buffer = make_buffer(0, 1)
    buffer.sample(Rollout(), arriving_row(2), RNG)
    for time in range(2, 6):
        buffer.add(full_row(time))
    assert times_of(buffer.sample(Episodes(), arriving_row(6), RNG)) == [[3, 4, 5]]


def test_an_episode_cut_off_by_a_reset_is_left_out() -> None:
    buffer = make_buffer(0, 1, 0, 1, 2)
    assert times_of(buffer.sample(Episodes(), arriving_row(3), RNG)) == [[0, 1, 2]]


def test_a_rollout_after_episodes_marks_what_was_read() -> None:
    buffer = make_buffer(*range(7))
    buffer.sample(Episodes(), arriving_row(7), RNG)
    batch = buffer.sample(Rollout(), arriving_row(7), RNG)
    assert times_of(batch) == [[6, 7], [5, 6, 7]]
    assert batch["valid"].tolist() == [[False, True, True], [True, True, True]]
    assert buffer.state()["begin"].tolist() == [0, 0]


def test_episodes_of_an_env_that_only_waits_are_not_served() -> None:
    buffer = make_buffer()
    for time in range(5):  # env 0 has given its episode after row 2 and plays on until env 1 is done
        buffer.add({**full_row(time), "valid": np.array([time < 3, True])})
    copy = make_buffer()
    copy.load_state(buffer.state())
    for one in (buffer, copy):
        assert times_of(one.sample(Episodes(), arriving_row(0), RNG)) == [[0, 1, 2], [0, 1, 2, 3, 4]]
        assert len(one) == 0  # the episode that was cut off is not waited for


def test_rows_that_do_not_count_are_marked_in_a_rollout() -> None:
    buffer = make_buffer(0, 1, 2)
    buffer.add({**full_row(3), "valid": np.array([False, True])})
    batch = buffer.sample(Rollout(), arriving_row(4), RNG)
    assert batch["valid"].tolist() == [[True, True, True, False, True], [True] * 5]


@pytest.mark.parametrize("read", [Rollout(), Episodes()])
def test_state_round_trip(read: Rollout | Episodes) -> None:
    buffer = make_buffer(*range(8))
    buffer.sample(Episodes(), arriving_row(8), RNG)
    copy = make_buffer(0)
    copy.load_state(buffer.state())
    for time in range(8, 12):
        buffer.add(full_row(time))
        copy.add(full_row(time))
    assert copy.memory_bytes == buffer.memory_bytes
    assert_same(copy.sample(read, arriving_row(12), RNG), buffer.sample(read, arriving_row(12), RNG))
    assert_same(copy.state()["rows"], buffer.state()["rows"])


def remembering_row(time: int) -> Row:
    return {**full_row(time), "carry/memory": np.full((2, 3), time, np.float32)}


def test_of_carries_the_first_of_a_rollout_is_kept() -> None:
    buffer = make_buffer()
    for start in (0, 4):
        for time in range(start, start + 4):
            buffer.add(remembering_row(time))
        without = len(buffer._rows) * 64
        assert buffer.memory_bytes == without + 24  # once, not with every row
        copy = make_buffer(7)
        copy.load_state(buffer.state())
        for one in (buffer, copy):
            batch = one.sample(Rollout(), arriving_row(start + 4), RNG)
            assert batch["carry/memory"].tolist() == [[[start] * 3]] * 2  # (N, 1, ...)
            assert batch["obs"].shape == (2, 5, 2)
            assert one.memory_bytes == 0


def test_a_carry_is_forecast_once_per_env() -> None:
    carry = {"carry/memory": np.zeros((2, 3), np.float32)}
    plain = RolloutBuffer.forecast(RolloutBuffer.Config(), ExpectedRows(SPECS, 2, {}, {}, 10))
    with_carry = RolloutBuffer.forecast(RolloutBuffer.Config(), ExpectedRows(SPECS, 2, carry, {}, 10))
    assert with_carry.memory - plain.memory == 2 * 12


def test_a_carry_does_not_outlive_its_rows() -> None:
    buffer = make_buffer()
    buffer.add(remembering_row(0))
    buffer.clear()
    buffer.add(remembering_row(5))
    assert buffer.sample(Rollout(), arriving_row(6), RNG)["carry/memory"][0, 0, 0] == 5


def test_state_is_a_copy() -> None:
    buffer = make_buffer(0, 1)
    saved = buffer.state()
    saved["rows"]["obs"][:] = 99
    saved["begin"][:] = 1
    assert times_of(buffer.sample(Rollout(), arriving_row(2), RNG)) == [[0, 1, 2]] * 2


def test_an_empty_buffer_can_be_saved_without_its_empty_entries() -> None:
    state = make_buffer().state()
    del state["rows"]
    copy = make_buffer(0, 1)
    copy.load_state(state)
    assert len(copy) == 0


def test_memory_is_that_of_the_arrays() -> None:
    # obs 16, reward 8, three flags 6, valid 2, log 8, action 16, value 8 for both envs
    assert make_buffer(0, 1, 2).memory_bytes == 3 * 64


@pytest.mark.parametrize("read", [Rollout(), Episodes()])
def test_reading_too_early_is_explained(read: Rollout | Episodes) -> None:
    times = () if isinstance(read, Rollout) else (0, 1)
    with pytest.raises(TrainingError, match="Collect before"):
        make_buffer(*times).sample(read, arriving_row(2), RNG)


@pytest.mark.parametrize("read", [Transitions(4), Window(2, 3)])
def test_reads_that_need_replay_are_refused(read: Transitions | Window) -> None:
    buffer = make_buffer(0, 1, 2)
    assert not buffer.can_sample(read)
    with pytest.raises(ConfigError, match="replay"):
        buffer.sample(read, arriving_row(3), RNG)


def test_extras_that_come_and_go_are_explained() -> None:
    buffer = make_buffer(0)
    incomplete = full_row(1)
    del incomplete["value"]
    buffer.add(incomplete)
    with pytest.raises(TrainingError, match="no column 'value'"):
        buffer.sample(Rollout(), arriving_row(2), RNG)


def test_there_is_nothing_to_write_back_to() -> None:
    with pytest.raises(TrainingError, match="priority"):
        make_buffer(0).write_back(WriteBack(np.zeros(1), {"priority": np.zeros(1)}))
