from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import read_specs
from reverie.core.types import Row
from reverie.envs.episode import Episode, make_action_map
from reverie.envs.suites.reverie.counting import ACTION, EPISODE, STEP, CountingEnv, episode_name, read_counting
from reverie.envs.vector import allocate_rows, row_layout


def _start(env: gym.Env[Any, Any], index: int = 0, stride: int = 1) -> tuple[Episode, Row]:
    specs = read_specs(env)
    episode = Episode(env, specs, ("success", "absent"), 7, "collect", index, stride)
    return episode, allocate_rows(row_layout(specs, ("success", "absent")), 1)


def test_each_episode_has_the_seed_of_its_number() -> None:
    episode, rows = _start(CountingEnv(length=2), index=2, stride=5)
    names = []
    episode.reset(rows, 0)
    for _ in range(7):
        names.append(int(read_counting(rows)[0, EPISODE]))
        episode.step(0, rows, 0)
    expected = [episode_name(derive_seed(7, "collect", number)) for number in (2, 2, 2, 7, 7, 7, 12)]
    assert names == expected


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_the_call_after_a_final_row_ignores_the_action_and_resets(ends: Any) -> None:
    episode, rows = _start(CountingEnv(length=2, ends=ends))
    episode.reset(rows, 0)
    seen = []
    for action in (1, 2, 3, 1):
        episode.step(action, rows, 0)
        numbers = read_counting(rows)[0]
        flags = [bool(rows[key][0]) for key in ("is_first", ends)]
        seen.append((numbers[STEP], numbers[ACTION], float(rows["reward"][0]), *flags))
    assert seen == [(1, 1, 1, False, False), (2, 2, 2, False, True), (0, -1, 0, True, False), (1, 1, 1, False, False)]


def test_info_is_recorded_and_missing_keys_count_as_zero() -> None:
    episode, rows = _start(CountingEnv(length=2))
    episode.reset(rows, 0)
    logged = []
    for _ in range(2):
        episode.step(0, rows, 0)
        logged.append((float(rows["log/success"][0]), float(rows["log/absent"][0])))
    assert logged == [(0, 0), (1, 0)]


def _map(space: gym.Space[Any], action: Any) -> Any:
    env = CountingEnv()
    env.action_space = space
    return make_action_map(read_specs(env).action, space)(action)


def test_actions_reach_the_bounds_and_never_pass_them() -> None:
    box = gym.spaces.Box(np.array([-2, 0.1], np.float32), np.array([6, 0.7], np.float32))
    assert _map(box, np.array([-1, 1], np.float32)).tolist() == [-2, np.float32(0.7)]
    assert _map(box, np.array([0, -1], np.float32)).tolist() == [2, np.float32(0.1)]
    assert _map(box, np.array([5, -9], np.float32)).tolist() == [6, np.float32(0.1)]
    symmetric = gym.spaces.Box(-1, 1, (1,), np.float32)
    tiny = np.array([1e-20], np.float32)
    assert _map(symmetric, tiny) == tiny


def test_actions_are_clipped_where_only_one_side_is_bounded() -> None:
    low, high = np.array([0, -np.inf, -np.inf], np.float32), np.array([np.inf, 2, np.inf], np.float32)
    box = gym.spaces.Box(low, high)
    assert _map(box, np.array([-3, 9, -9], np.float32)).tolist() == [0, 2, -9]
    assert _map(box, np.array([7, -9, 9], np.float32)).tolist() == [7, -9, 9]


def test_actions_take_the_form_that_the_space_asks_for() -> None:
    unbounded = _map(gym.spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([12.5], np.float32))
    assert (unbounded.dtype, unbounded.tolist()) == (np.float64, [12.5])
    assert _map(gym.spaces.Discrete(3, start=5), np.int64(2)) == 7
    assert type(_map(gym.spaces.Discrete(3), np.int64(2))) is int
    assert _map(gym.spaces.MultiDiscrete([3, 3], start=np.array([1, 4])), np.array([2, 0])).tolist() == [3, 4]
    binary = _map(gym.spaces.MultiBinary(2), np.array([1, 0]))
    assert (binary.dtype, binary.tolist()) == (np.int8, [1, 0])
    whole = _map(gym.spaces.Box(0, 10, (1,), np.int32), np.array([0.33], np.float32))
    assert (whole.dtype, whole.tolist()) == (np.int32, [7])


def test_the_snapshot_is_two_numbers_and_the_actions_since_reset() -> None:
    episode, rows = _start(CountingEnv(length=4))
    assert episode.state()["episode"] == -1
    episode.reset(rows, 0)
    for action in (1, 2, 3, 0, 3, 2, 1):
        episode.step(action, rows, 0)
    state = episode.state()
    assert (state["episode"], state["pending"], state["actions"].tolist()) == (1, False, [2, 1])
    episode.step(0, rows, 0)
    episode.step(0, rows, 0)
    assert (episode.state()["pending"], episode.state()["actions"].shape) == (True, (0,))


@pytest.mark.parametrize("moment", range(7))
def test_a_restored_episode_shows_the_last_row_and_goes_on_alike(moment: int) -> None:
    rng = make_generator("test")
    actions = read_specs(CountingEnv(action="continuous")).action.sample(rng, 20)
    (one, rows), (other, other_rows) = (_start(CountingEnv(3, action="continuous")) for _ in range(2))
    one.reset(rows, 0)
    for action in actions[:moment]:
        one.step(action, rows, 0)
    other.load_state(one.state(), other_rows, 0)
    if not one.pending:
        assert other_rows["obs"].tolist() == rows["obs"].tolist()
    for action in actions[moment:]:
        one.step(action, rows, 0)
        other.step(action, other_rows, 0)
        assert all(rows[key].tobytes() == other_rows[key].tobytes() for key in rows)


def test_kept_actions_do_not_follow_the_callers_memory() -> None:
    episode, rows = _start(CountingEnv(5, action="continuous"))
    episode.reset(rows, 0)
    action = np.zeros(2, np.float32)
    episode.step(action, rows, 0)
    action[:] = 1
    assert episode.state()["actions"].tolist() == [[0, 0]]


def _is_cut(rows: Row) -> bool:
    flags = [bool(rows[key][0]) for key in ("is_first", "terminated", "truncated")]
    return flags == [False, False, True] and rows["reward"][0] == rows["log/success"][0] == 0


def test_an_episode_that_does_not_repeat_is_cut_and_a_new_one_begins() -> None:
    """Here the env was changed: episodes now end after four steps."""
    episode, rows = _start(CountingEnv(length=4))
    episode.load_state({"episode": 3, "pending": False, "actions": np.zeros(4, np.int64)}, rows, 0)
    assert episode.is_lost
    seen = rows["obs"].copy()
    episode.step(1, rows, 0)
    assert _is_cut(rows)
    assert rows["obs"].tolist() == seen.tolist()
    episode.step(1, rows, 0)
    assert bool(rows["is_first"][0])
    assert episode.number == 4


def test_an_episode_that_fails_when_it_is_repeated_is_cut() -> None:
    episode, rows = _start(CountingEnv(length=4, crash_at=2))
    episode.load_state({"episode": 0, "pending": False, "actions": np.zeros(3, np.int64)}, rows, 0)
    assert episode.is_lost
    episode.step(0, rows, 0)
    assert _is_cut(rows)


def test_a_lost_episode_can_be_saved_again() -> None:
    (episode, rows), (other, other_rows) = (_start(CountingEnv(length=9)) for _ in range(2))
    episode.reset(rows, 0)
    episode.step(1, rows, 0)
    episode.abandon(rows, 0)
    state = episode.state()
    assert (state["episode"], state["pending"], state["lost"], len(state["actions"])) == (0, False, True, 0)
    other.load_state(state, other_rows, 0)
    other.abandon(rows, 0)  # the vector knows what was seen last
    for _ in range(4):
        episode.step(2, rows, 0)
        other.step(2, other_rows, 0)
        assert all(rows[key].tobytes() == other_rows[key].tobytes() for key in rows)


def test_the_log_of_actions_is_bounded() -> None:
    """Without a state call of the simulator nothing can restore an episode that is too long."""
    env = CountingEnv(length=6)
    specs = read_specs(env)
    episode = Episode(env, specs, (), 7, "collect", 0, 1, longest_replay=3)
    rows = allocate_rows(row_layout(specs, ()), 1)
    episode.reset(rows, 0)
    lost, lengths = [], []
    for _ in range(9):
        episode.step(0, rows, 0)
        state = episode.state()
        lost.append(bool(state.get("lost")))
        lengths.append(len(state["actions"]))
    # Steps 1-3 can be repeated, 4 and 5 cannot, then come the end, a reset and the same again.
    assert lost == [False, False, False, True, True, False, False, False, False]
    assert lengths == [1, 2, 3, 0, 0, 0, 0, 1, 2]
