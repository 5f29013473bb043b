"""Blocks of rows: a buffer that is extended equals one to which the same rows were added one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import TrainingError
from reverie.core.reads import Episodes, Rollout, Transitions
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, Specs
from reverie.core.types import Block, Row
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.data.rollout import RolloutBuffer
from reverie.data.rows import stack_rows
from reverie.store.trees import SealedStore
from tests.sessions import assert_same_state
from tests.unit.data.test_replay import SPECS, assert_same, make_row


def make_block(begin: int, end: int, rows: Any = make_row, version: int = 0) -> Block:
    return Block(stack_rows([rows(time) for time in range(begin, end)], axis=1), {}, version)


def noted_row(time: int) -> Row:
    return {**make_row(time), "note/latent": np.full((2, 3), time + 0.25, np.float32)}


def rested_row(time: int) -> Row:
    return {**make_row(time), "valid": np.array([True, time % 4 > 0])}


def picture_row(time: int) -> Row:
    """Wide enough for a file."""
    return {**make_row(time), "obs": np.full((2, 8, 8, 3), time, np.uint8)}


def stacked_row(time: int) -> Row:
    """Stacks of three frames, as the frame_stack wrapper makes them."""
    ages = [time % 3, time % 5]  # the episodes of make_row
    frames = [[time - min(age, back) for back in (2, 1, 0)] for age in ages]
    return {**make_row(time), "obs": np.array(frames, np.uint8)[:, None, None] * np.ones((1, 2, 2, 1), np.uint8)}


KINDS = {"plain": make_row, "annotated": noted_row, "resting": rested_row, "stacked": stacked_row}


def specs_of(rows: Any) -> Specs:
    obs = rows(0)["obs"]
    spec = ObservationSpec(obs.shape[1:], str(obs.dtype), "image" if obs.ndim > 2 else "vector")
    return Specs({"obs": spec}, SPECS.action)


def make_replay(rows: Any, store: SealedStore | None = None, **settings: Any) -> ReplayBuffer:
    settings = {"capacity": 40, "chunk_rows": 6, "stacked_frames": 3 if rows is stacked_row else 1, **settings}
    if store is not None:
        settings["storage"] = "disk"
    return ReplayBuffer(ReplayBuffer.Config(**settings), specs_of(rows), 2, store)


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_extending_a_replay_equals_adding(rows: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one_by_one, at_once = make_replay(rows), make_replay(rows)
    time = 0
    while time < 90:
        length = int(rng.integers(0, 35))
        for moment in range(time, time + length):
            one_by_one.add(rows(moment))
        if length:
            at_once.extend(make_block(time, time + length, rows))
        time += length
        assert_same_state(at_once.state(), one_by_one.state())
        for read in (Transitions(8, 2), Episodes()):
            assert at_once.can_sample(read) == one_by_one.can_sample(read)
            if at_once.can_sample(read):
                batches = [buffer.sample(read, {}, make_generator(time)) for buffer in (at_once, one_by_one)]
                assert_same(*batches)


def test_extending_a_replay_on_disk_equals_adding(tmp_path: Path) -> None:
    one_by_one = make_replay(picture_row, SealedStore(tmp_path / "a"))
    at_once = make_replay(picture_row, SealedStore(tmp_path / "b"))
    for time in range(50):
        one_by_one.add(picture_row(time))
    for begin, end in ((0, 1), (1, 30), (30, 50)):
        at_once.extend(make_block(begin, end, picture_row))
    assert_same(*(buffer.sample(Transitions(16), {}, make_generator(0)) for buffer in (at_once, one_by_one)))
    assert {path.name for path in (tmp_path / "a").iterdir()} == {path.name for path in (tmp_path / "b").iterdir()}


def test_a_state_that_was_handed_out_keeps_its_values() -> None:
    buffer = make_replay(make_row)
    buffer.extend(make_block(0, 20))
    state = buffer.state()
    chunks = [{key: values.copy() for key, values in chunk.arrays.items()} for chunk in state["rows"]["chunks"]]
    assert chunks
    buffer.extend(make_block(20, 80))
    for chunk, before in zip(state["rows"]["chunks"], chunks, strict=True):
        assert_same(chunk.arrays, before)


@pytest.mark.parametrize("read", [Rollout(), Episodes()])
def test_extending_a_rollout_equals_adding(read: Rollout | Episodes) -> None:
    def carried(time: int) -> Row:
        return {**rested_row(time), "carry/hidden": np.full((2, 4), time, np.float32)}

    one_by_one, at_once = (RolloutBuffer(RolloutBuffer.Config(), SPECS, 2) for _ in range(2))
    for begin, end in ((0, 7), (7, 8), (8, 21)):
        for time in range(begin, end):
            one_by_one.add(carried(time))
        at_once.extend(make_block(begin, end, carried))
        assert_same_state(at_once.state(), one_by_one.state())
        assert len(at_once) == len(one_by_one) >= 2 * (end - begin)
        assert at_once.can_sample(read) == one_by_one.can_sample(read)
        if at_once.can_sample(read):
            assert_same(*(buffer.sample(read, make_row(end), make_generator(0)) for buffer in (at_once, one_by_one)))


def test_a_block_of_another_shape_is_refused() -> None:
    buffer = make_replay(make_row)
    buffer.extend(make_block(0, 4))
    with pytest.raises(TrainingError, match="'value' was float32"):
        buffer.extend(make_block(4, 6, lambda time: {**make_row(time), "value": np.zeros((2, 3), np.float32)}))


def test_rows_know_the_policy_that_collected_them() -> None:
    replay = make_replay(make_row, policy_version=True)
    rollout = RolloutBuffer(RolloutBuffer.Config(policy_version=True), SPECS, 2)
    for buffer in (replay, rollout):
        buffer.extend(make_block(0, 6, version=3))
        buffer.extend(make_block(6, 9, version=4))
        buffer.add(make_row(9))
        buffer.add({**make_row(10), "policy_version": np.array([7, 7])})
    expected = [3] * 6 + [4] * 3 + [-1, 7]
    stored = replay.rows.gather(np.arange(22).reshape(11, 2))["policy_version"]
    assert stored.T.tolist() == [expected, expected]
    assert (
        rollout.sample(Rollout(), make_row(11), make_generator(0))["policy_version"][:, :-1].tolist() == [expected] * 2
    )


def test_versions_are_not_stored_unless_asked_for() -> None:
    buffer = make_replay(make_row)
    buffer.extend(make_block(0, 6, version=3))
    assert "policy_version" not in buffer.rows.keys


@pytest.mark.parametrize("config", [ReplayBuffer.Config(capacity=1000, chunk_rows=10), RolloutBuffer.Config()])
def test_versions_are_part_of_the_forecast(config: Any) -> None:
    expected = ExpectedRows(SPECS, 2, rollout_rows=1000)
    without, with_versions = (
        forecast_buffer(config.model_copy(update={"policy_version": version}), expected).memory
        for version in (False, True)
    )
    rows = 2000 if config.kind == "rollout" else 1010
    assert with_versions - without == 8 * rows
