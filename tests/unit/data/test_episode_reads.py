"""Whole episodes out of a replay buffer, against a plain list of rows, on hand-made and on random streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Episodes, Transitions
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row, WriteBack
from reverie.data.replay import ReplayBuffer
from reverie.data.rollout import RolloutBuffer
from tests.unit.data import streams
from tests.unit.data.streams import STREAMS
from tests.unit.data.test_replay import assert_same, through_files

SPECS = Specs({"obs": ObservationSpec((2,), "float32", "vector")}, ActionSpec("discrete", (), "int64", (9,)))
Episode = tuple[int, int, int]
"""Env, first vector step and the step behind the last one."""


def make_row(letters: tuple[str, ...], time: int) -> Row:
    envs = np.arange(len(letters))
    return {
        **streams.make_row(letters),
        "obs": np.stack([envs, np.full(len(letters), time)], axis=1).astype(np.float32),
        "reward": (envs + 10.0 * time + 1).astype(np.float32),
        "action": (envs + time) % 9,
    }


def make_buffer(lanes: tuple[str, ...], **settings: Any) -> ReplayBuffer:
    config = ReplayBuffer.Config(**{"capacity": 1000, "chunk_rows": 3 * len(lanes), **settings})
    buffer = ReplayBuffer(config, SPECS, len(lanes))
    for time, letters in enumerate(zip(*lanes, strict=True)):
        buffer.add(make_row(letters, time))
    return buffer


def complete_episodes(lanes: tuple[str, ...], oldest: int) -> list[Episode]:
    """Row by row: from a first row to a final one, without an invalid row or another start in between."""
    found: list[Episode] = []
    start: list[int | None] = [None] * len(lanes)
    for time in range(oldest, len(lanes[0])):
        for env, lane in enumerate(lanes):
            if lane[time] in "fg":
                start[env] = time
            if lane[time] == "x":
                start[env] = None
            first = start[env]
            if lane[time] in "tc":
                start[env] = None
                if first is not None:
                    found.append((env, first, time + 1))
    return found


def episodes_of(batch: Row) -> list[Episode]:
    """Which rows a batch holds, by its observations; also that ids agree and padding is zero."""
    found = []
    for i, valid in enumerate(batch["valid"]):
        length = int(valid.sum())
        assert valid[:length].all(), "padding comes last"
        env, first = batch["obs"][i, 0].astype(int).tolist()
        times = batch["obs"][i, :length, 1].astype(int).tolist()
        assert times == list(range(first, first + length))
        assert (batch["obs"][i, :length, 0] == env).all()
        assert batch["reward"][i, :length].tolist() == [env + 10 * time + 1 for time in times]
        assert all(not batch[key][i, length:].any() for key in batch if key != "id")
        assert (batch["id"][i, length:] == -1).all()
        found.append((env, first, first + length))
    return found


def random_lanes(rng: np.random.Generator, length: int) -> tuple[str, ...]:
    weights = np.array([3, 12, 3, 2, 1, 1])
    letters = [*"f.tcgx"]
    return tuple("".join(rng.choice(letters, length, p=weights / weights.sum())) for _ in range(rng.integers(1, 4)))


def test_all_complete_episodes_in_the_order_they_ended() -> None:
    buffer = make_buffer(STREAMS)
    batch = buffer.sample(Episodes(), {}, make_generator(0))
    expected = complete_episodes(STREAMS, 0)
    assert len(expected) > 4
    assert episodes_of(batch) == expected
    np.testing.assert_array_equal(batch["id"][batch["valid"]], ids_of(expected, len(STREAMS)))


def ids_of(episodes: list[Episode], num_envs: int) -> list[int]:
    return [time * num_envs + env for env, first, end in episodes for time in range(first, end)]


@pytest.mark.parametrize("seed", range(60))
def test_brute_force_while_rows_come_and_go(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = random_lanes(rng, int(rng.integers(10, 90)))
    asked_every, capacity = int(rng.integers(1, 30)), int(rng.integers(8, 150))
    config = ReplayBuffer.Config(capacity=max(8, capacity), chunk_rows=int(rng.integers(1, 20)))
    buffer = ReplayBuffer(config, SPECS, len(lanes))
    for time, letters in enumerate(zip(*lanes, strict=True)):
        buffer.add(make_row(letters, time))
        if time % asked_every and time < len(lanes[0]) - 1:
            continue
        expected = complete_episodes(tuple(lane[: time + 1] for lane in lanes), buffer.rows.oldest)
        assert buffer.can_sample(Episodes()) == bool(expected)
        if expected:
            assert episodes_of(buffer.sample(Episodes(), {}, make_generator(0))) == expected
            drawn = episodes_of(buffer.sample(Episodes(5), {}, make_generator(time)))
            assert len(drawn) == 5
            assert set(drawn) <= set(expected)


def test_every_episode_is_drawn_equally_often() -> None:
    buffer = make_buffer(STREAMS)
    expected = complete_episodes(STREAMS, 0)
    batch = buffer.sample(Episodes(3000), {}, make_generator(0))
    first_ids = {first * len(STREAMS) + env: 1.0 for env, first, _ in expected}
    streams.assert_chances(batch["id"][:, 0], first_ids)


def test_replay_and_rollout_serve_the_same_batch() -> None:
    lanes = ("f..tf.cf", "f.cf...t")
    replay, rollout = make_buffer(lanes), RolloutBuffer(RolloutBuffer.Config(), SPECS, 2)
    for time, letters in enumerate(zip(*lanes, strict=True)):
        rollout.add(make_row(letters, time))
    batch = replay.sample(Episodes(), {}, make_generator(0))
    del batch["id"]
    assert_same(dict(sorted(batch.items())), dict(sorted(rollout.sample(Episodes(), {}, make_generator(0)).items())))


def test_annotations_come_with_the_episodes() -> None:
    buffer = make_buffer(("f..tf.t",))
    buffer.write_back(WriteBack(np.array([1, 5]), {"latent": np.array([[2.0], [3.0]], np.float32)}))
    batch = buffer.sample(Episodes(), {}, make_generator(0))
    assert batch["latent"][..., 0].tolist() == [[0, 2, 0, 0], [0, 3, 0, 0]]


@pytest.mark.parametrize("through", ["memory", "files"])
def test_a_restored_buffer_draws_the_same(through: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lanes = tuple("".join(rng.choice([*"f..t"], 120)) for _ in range(2))
    buffer = make_buffer(tuple(lane[:70] for lane in lanes), capacity=60)
    buffer.sample(Episodes(2), {}, make_generator(0))
    copy = make_buffer(("f", "f"), capacity=60)
    state = buffer.state()
    copy.load_state(through_files(state, tmp_path) if through == "files" else state)
    for time in range(70, 120):
        for one in (buffer, copy):
            one.add(make_row((lanes[0][time], lanes[1][time]), time))
        for read in (Episodes(), Episodes(3)):
            if buffer.can_sample(read):
                drawn, again = (one.sample(read, {}, make_generator(time)) for one in (buffer, copy))
                assert_same(drawn, again)
    assert copy.usage.served == buffer.usage.served


def test_use_is_counted_in_real_rows() -> None:
    buffer = make_buffer(("f..tf.t",))
    buffer.sample(Episodes(), {}, make_generator(0))
    assert buffer.usage.served == 7
    assert buffer.metrics()["samples_per_insert"] == 1


def test_frame_stacks_are_served_whole() -> None:
    image = Specs({"obs": ObservationSpec((2, 2, 3), "uint8", "image")}, SPECS.action)
    buffer = ReplayBuffer(ReplayBuffer.Config(capacity=100, stacked_frames=3), image, 1)
    lane = "f.tf...cf"
    shown, stacks = [], []
    for time, letter in enumerate(lane):
        frame = np.full((2, 2, 1), time, np.uint8)
        shown = [frame] * 3 if letter == "f" else [*shown[1:], frame]
        stacks.append(np.concatenate(shown, axis=-1))
        row = {**make_row((letter,), time), "obs": stacks[-1][None]}
        buffer.add(row)
    batch = buffer.sample(Episodes(), {}, make_generator(0))
    np.testing.assert_array_equal(batch["obs"][0, :3], stacks[:3])
    np.testing.assert_array_equal(batch["obs"][1, :5], stacks[3:8])
    assert not batch["obs"][0, 3:].any()


def test_a_buffer_without_a_complete_episode_says_so() -> None:
    for buffer in (make_buffer(("f...",)), make_buffer(("...t",)), make_buffer(("f..t",), min_rows=5)):
        assert not buffer.can_sample(Episodes())
        with pytest.raises(TrainingError, match=r"no complete episode|min_rows"):
            buffer.sample(Episodes(), {}, make_generator(0))
    cleared = make_buffer(("f..t",))
    assert cleared.can_sample(Episodes())
    cleared.clear()
    assert not cleared.can_sample(Episodes())
    with pytest.raises(TrainingError, match="holds 0 rows"):
        cleared.sample(Episodes(), {}, make_generator(0))


def test_a_rollout_buffer_does_not_sample_episodes() -> None:
    rollout = RolloutBuffer(RolloutBuffer.Config(), SPECS, 1)
    with pytest.raises(ConfigError, match="all finished episodes"):
        rollout.sample(Episodes(4), {}, make_generator(0))


def test_other_reads_are_not_changed_by_episode_reads() -> None:
    buffer, other = make_buffer(STREAMS), make_buffer(STREAMS)
    buffer.sample(Episodes(), {}, make_generator(0))
    one, two = (each.sample(Transitions(8), {}, make_generator(1)) for each in (buffer, other))
    assert_same(one, two)
