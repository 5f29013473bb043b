"""Hindsight relabelling, against batches that were relabelled by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.reads import Episodes, Read, Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Array, Row, WriteBack
from reverie.data.replay import ReplayBuffer
from reverie.envs.goals import Goals
from reverie.functional.transition_batch import n_step_transitions
from tests.unit.data.streams import episodes, make_columns, make_row

PLACE = ObservationSpec((1,), "float32", "vector")
SPECS = Specs(
    {f"obs/{key}": PLACE for key in ("observation", "achieved_goal", "desired_goal")},
    ActionSpec("discrete", (), "int64", (2,)),
)
LENGTH = 5
"""Rows of an episode. The agent is at place 10 * episode + step, and wants to be at 99."""


def is_there(achieved: Array, desired: Array) -> Array:
    return np.asarray((achieved == desired).all(-1))


def minus_distance(achieved: Array, desired: Array) -> Array:
    return -np.abs(achieved - desired).sum(-1)


def row_of_walk(time: int, num_envs: int, ends_by: str) -> Row:
    episode, step = divmod(time, LENGTH)
    places = np.full((num_envs, 1), 10 * episode + step, np.float32) + 1000 * np.arange(num_envs)[:, None]
    flags = {name: np.full(num_envs, step == LENGTH - 1 and ends_by == name) for name in ("terminated", "truncated")}
    return {
        "obs/observation": places.astype(np.float32), "obs/achieved_goal": places.astype(np.float32),
        "obs/desired_goal": np.full((num_envs, 1), 99, np.float32), "reward": np.full(num_envs, -7, np.float32),
        "is_first": np.full(num_envs, step == 0), **flags, "action": np.zeros(num_envs, np.int64),
    }  # fmt: skip


def make_buffer(
    rows: int, strategy: str = "future", ratio: float = 1.0, *, num_envs: int = 1, ends_by: str = "terminated",
    goals: Goals | None = None, **settings: Any,
) -> ReplayBuffer:  # fmt: skip
    settings = {"capacity": 800, "hindsight": {"strategy": strategy, "ratio": ratio}, **settings}
    goals = goals or Goals(minus_distance, is_there)
    buffer = ReplayBuffer(ReplayBuffer.Config.model_validate(settings), SPECS, num_envs, goals=goals)
    for time in range(rows):
        buffer.add(row_of_walk(time, num_envs, ends_by))
    return buffer


def places(batch: Row, key: str = "obs/observation") -> Array:
    return np.asarray(batch[key][..., 0])


def goals_by_place(buffer: ReplayBuffer, samples: int = 3000) -> dict[float, set[float]]:
    """All goals that transitions get, by the place where they start."""
    batch = buffer.sample(Transitions(samples), {}, make_generator("sample"))
    starts, goals = places(batch)[:, 0], places(batch, "obs/desired_goal")
    assert (goals == goals[:, :1]).all(), "a transition has one goal"
    return {start: set(goals[starts == start, 0].tolist()) for start in sorted(set(starts.tolist()))}


def test_future_goals_are_reached_later_in_the_same_episode() -> None:
    found = goals_by_place(make_buffer(2 * LENGTH))
    assert found == {
        0: {1, 2, 3, 4}, 1: {2, 3, 4}, 2: {3, 4}, 3: {4},
        10: {11, 12, 13, 14}, 11: {12, 13, 14}, 12: {13, 14}, 13: {14},
    }  # fmt: skip


def test_the_final_goal_is_that_of_the_last_row() -> None:
    found = goals_by_place(make_buffer(2 * LENGTH, "final"))
    assert found == {place: {4} for place in range(4)} | {place: {14} for place in range(10, 14)}


def test_goals_of_the_whole_episode_are_those_of_all_rows_but_the_first() -> None:
    found = goals_by_place(make_buffer(2 * LENGTH, "episode"))
    assert found == {place: {1, 2, 3, 4} for place in range(4)} | {place: {11, 12, 13, 14} for place in range(10, 14)}


def test_an_episode_that_still_runs_counts_with_the_rows_so_far() -> None:
    assert goals_by_place(make_buffer(3)) == {0: {1, 2}, 1: {2}}
    assert goals_by_place(make_buffer(3, "final")) == {0: {2}, 1: {2}}


def test_goals_come_from_the_same_env_and_from_stored_rows() -> None:
    buffer = make_buffer(103, "episode", num_envs=2, capacity=64, chunk_rows=8)
    found = goals_by_place(buffer, 20_000)
    oldest, newest = buffer.rows.oldest, buffer.rows.newest
    for start, goals in found.items():
        env, place = divmod(start, 1000)
        times = [time for time in range(oldest, newest + 1) if time // LENGTH == place // 10]
        reached = {1000 * env + 10 * (time // LENGTH) + time % LENGTH for time in times}
        assert goals == reached - {min(reached)}
    assert {start // 1000 for start in found} == {0, 1}


def test_rewards_and_ends_follow_from_the_new_goal() -> None:
    """At place 2 with goal 4, two steps remain: the rewards are -1 and 0, and the second step reaches it."""
    batch = make_buffer(LENGTH, "final").sample(Transitions(64, n=2), {}, make_generator(0))
    for sample in range(64):
        start = int(places(batch)[sample, 0])
        row = np.arange(start + 1, min(start + 3, LENGTH))
        valid = np.flatnonzero(batch["valid"][sample, 1:]) + 1
        np.testing.assert_array_equal(batch["reward"][sample, valid], row - 4)
        np.testing.assert_array_equal(batch["terminated"][sample, valid], row == 4)
    assert not batch["truncated"].any()


def test_an_end_that_belonged_to_the_old_goal_becomes_a_truncation() -> None:
    """So the value bootstraps there, as after a time limit."""
    goals = Goals(minus_distance, lambda achieved, desired: np.zeros(len(achieved), bool))
    batch = make_buffer(LENGTH, goals=goals).sample(Transitions(64), {}, make_generator(0))
    is_end = places(batch)[:, 1] == LENGTH - 1
    assert 0 < is_end.sum() < 64
    assert not batch["terminated"][:, 1].any()
    np.testing.assert_array_equal(batch["truncated"][:, 1], is_end)
    assert (n_step_transitions(batch, 0.9).discounts == np.float32(0.9)).all()


def test_ends_stay_where_the_env_does_not_compute_them() -> None:
    batch = make_buffer(LENGTH, goals=Goals(minus_distance, None)).sample(Transitions(64), {}, make_generator(0))
    np.testing.assert_array_equal(batch["terminated"][:, 1], places(batch)[:, 1] == LENGTH - 1)


def test_a_goal_reached_within_n_steps_ends_the_sum_of_rewards() -> None:
    """From place 0 with goal 2: rewards -1 and 0, nothing of the third step, and no value after it."""
    batch = make_buffer(LENGTH, ends_by="truncated").sample(Transitions(400, n=3), {}, make_generator(1))
    learned = n_step_transitions(batch, 0.5)
    chosen = (places(batch)[:, 0] == 0) & (places(batch, "obs/desired_goal")[:, 0] == 2)
    assert chosen.any()
    np.testing.assert_array_equal(learned.rewards[chosen], -1)
    np.testing.assert_array_equal(learned.discounts[chosen], 0)
    assert (learned.weights > 0).all(), "the first row of a transition is never final"
    far = (places(batch)[:, 0] == 0) & (places(batch, "obs/desired_goal")[:, 0] == 4)
    np.testing.assert_allclose(learned.rewards[far], -3 - 0.5 * 2 - 0.25)
    np.testing.assert_allclose(learned.discounts[far], 0.125)


def test_the_ratio_is_the_probability_of_a_new_goal_and_others_stay_as_they_were() -> None:
    batch = make_buffer(4 * LENGTH, ratio=0.8).sample(Transitions(4000), {}, make_generator(0))
    is_old = places(batch, "obs/desired_goal")[:, 0] == 99
    assert is_old.mean() == pytest.approx(0.2, abs=0.02)
    assert (batch["reward"][is_old, 1] == -7).all()
    assert (batch["reward"][~is_old, 1] > -7).all()


def test_a_ratio_of_zero_changes_nothing() -> None:
    settings: dict[str, Any] = {"capacity": 800}
    plain = ReplayBuffer(ReplayBuffer.Config(**settings), SPECS, 1)
    for time in range(23):
        plain.add(row_of_walk(time, 1, "terminated"))
    without = plain.sample(Transitions(50), {}, make_generator(0))
    zero = make_buffer(23, ratio=0.0).sample(Transitions(50), {}, make_generator(0))
    for key in without:
        np.testing.assert_array_equal(zero[key], without[key])


def test_stored_rows_do_not_change() -> None:
    buffer = make_buffer(3 * LENGTH)
    before = buffer.rows.gather(buffer.rows.ids)
    buffer.sample(Transitions(100), {}, make_generator(0))
    for key, values in buffer.rows.gather(buffer.rows.ids).items():
        np.testing.assert_array_equal(values, before[key])


def test_a_restored_buffer_draws_the_same_batches_and_goes_on_alike() -> None:
    one = make_buffer(97, num_envs=2, capacity=64, chunk_rows=8)
    one.sample(Transitions(5), {}, make_generator("earlier"))
    other = make_buffer(0, num_envs=2, capacity=64, chunk_rows=8)
    other.load_state(one.state())
    for time in range(97, 140):
        batches = [buffer.sample(Transitions(20, n=2), {}, make_generator(time)) for buffer in (one, other)]
        for key in batches[0]:
            np.testing.assert_array_equal(batches[0][key], batches[1][key], err_msg=key)
        for buffer in (one, other):
            buffer.add(row_of_walk(time, 2, "terminated"))


def test_priorities_choose_transitions_and_hindsight_their_goals() -> None:
    buffer = make_buffer(4 * LENGTH, sampler={"kind": "prioritised", "alpha": 1.0, "beta_rows": 1})
    priorities = np.where(np.arange(20) == 11, 1e6, 1e-6).astype(np.float32)
    buffer.write_back(WriteBack(np.arange(20), {"priority": priorities}))
    batch = buffer.sample(Transitions(50), {}, make_generator(0))
    drawn = places(batch)[:, 0] == 21  # row 11 is the second of the third episode
    assert drawn.mean() > 0.9
    assert set(places(batch, "obs/desired_goal")[drawn, 0].tolist()) == {22, 23, 24}
    assert "importance" in batch


@pytest.mark.parametrize("read", [Window(2, 3), Episodes(2)])
def test_reads_that_may_hold_several_goals_are_refused(read: Read) -> None:
    with pytest.raises(ConfigError, match="Hindsight relabels transitions"):
        make_buffer(4 * LENGTH).sample(read, {}, make_generator(0))


def test_hindsight_and_stacks_of_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="hindsight needs whole observations"):
        ReplayBuffer.Config.model_validate({"hindsight": {}, "stacked_frames": 2})


@pytest.mark.parametrize("asked_every", [1, 3, 1000])
def test_bounds_of_episodes_against_plain_loops(asked_every: int) -> None:
    rng = np.random.default_rng(3)
    streams = tuple("".join(rng.choice([*"f......t.cgx"], 200)) for _ in range(3))
    columns = make_columns(tuple("." for _ in streams), 5, 8)
    columns.clear()
    for step, letters in enumerate(zip(*streams, strict=True), start=1):
        columns.append(make_row(letters))
        if step % asked_every and step < 200:
            continue
        start = columns.end - step  # ids are not reused after clear
        first, last = columns.bounds.find(columns.ids)
        for env, stream in enumerate(streams):
            for begin, stop in episodes(stream[:step], columns.oldest - start):
                for row in range(begin, stop):
                    place = (row - (columns.oldest - start)) * 3 + env
                    assert first[place] == (begin + start) * 3 + env
                    assert last[place] == (stop - 1 + start) * 3 + env
