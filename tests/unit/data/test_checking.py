"""The checking agent passes a correct loop and notices each way in which one can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reverie.core import registry
from reverie.core.reads import Episodes, Rollout
from reverie.core.rng import make_generator
from reverie.core.types import Clock, Mode, Row
from reverie.data.rollout import RolloutBuffer
from reverie.envs.config import EnvConfig
from reverie.envs.vector import SyncVector
from tests.checking import CheckingAlgorithm

NUM_ENVS = 3


class Loop:
    """The smallest correct loop: arriving rows to ``act``, actions to the envs, rows to the buffer."""

    def __init__(self, ends: str = "terminated", varied: bool = True) -> None:
        kwargs = {"length": 5, "varied": varied, "ends": ends}
        self.vector = SyncVector(EnvConfig(id="Reverie/Counting-v0", kwargs=kwargs), 1, "collect", NUM_ENVS)
        self.rng = make_generator("unused")
        self.algorithm = CheckingAlgorithm(CheckingAlgorithm.Config(), self.vector.specs, self.rng)
        self.buffer = RolloutBuffer(RolloutBuffer.Config(), self.vector.specs, NUM_ENVS)
        self.carry = self.algorithm.initial_carry(NUM_ENVS)
        self.arriving = self.vector.reset()
        self.previous_action = np.zeros(NUM_ENVS, np.int64)

    def collect(self, count: int, tamper: Callable[[Row], Row] = lambda now: now) -> None:
        for _ in range(count):
            now = tamper({**self.arriving, "previous_action": self.previous_action})
            action, self.carry, extras = self.algorithm.act(now, self.carry, Clock(), self.rng, Mode.COLLECT)
            self.buffer.add({**self.arriving, "action": action, **extras})
            self.arriving, self.previous_action = self.vector.step(action), action

    def read(self, read: Rollout | Episodes) -> Row:
        return self.buffer.sample(read, self.arriving, self.rng)


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_a_correct_loop_passes(ends: str) -> None:
    loop = Loop(ends)
    for expected_first in (0, 8, 16):
        loop.collect(8)
        update = loop.algorithm.update(loop.read(Rollout()), Clock(), loop.rng)
        assert (update.metrics["first_act"], update.metrics["last_act"]) == (
            expected_first,
            expected_first + 7,
        )
        assert update.metrics["rows"] == NUM_ENVS * 9
        assert 0 < update.metrics["transitions"] < NUM_ENVS * 8
    loop.collect(30)
    update = loop.algorithm.update_episodes(loop.read(Episodes()), Clock(), loop.rng)
    assert update.metrics["episodes"] > 6


def test_a_crashed_env_is_an_episode_that_was_cut() -> None:
    loop = Loop(varied=False)
    loop.collect(2)
    seen = loop.arriving
    loop.collect(1)
    no, yes = np.zeros(NUM_ENVS, bool), np.ones(NUM_ENVS, bool)
    stand_in = {"reward": np.zeros(NUM_ENVS, np.float32), "is_first": no, "terminated": no, "truncated": yes}
    loop.arriving = {**seen, **stand_in}
    loop.collect(1)
    loop.arriving = loop.vector.reset()
    loop.collect(5)
    update = loop.algorithm.update(loop.read(Rollout()), Clock(), loop.rng)
    assert update.metrics["transitions"] == NUM_ENVS * (3 + 5)  # three before the cut, none out of it


def test_evaluation_does_not_move_the_cycle() -> None:
    loop = Loop()
    now = {**loop.arriving, "previous_action": loop.previous_action}
    loop.algorithm.act(now, loop.carry, Clock(), loop.rng, Mode.EVALUATE)
    assert loop.algorithm.acts == 0


def test_act_notices_a_lost_row() -> None:
    loop = Loop()
    loop.collect(1)
    loop.arriving = loop.vector.step(np.zeros(NUM_ENVS, np.int64))
    with pytest.raises(AssertionError, match="another number of rows"):
        loop.collect(1)


def test_act_notices_a_carry_that_was_not_reset() -> None:
    loop = Loop()
    loop.collect(1)
    with pytest.raises(AssertionError, match="another number of rows"):
        loop.collect(20, tamper=lambda now: {**now, "is_first": np.zeros(NUM_ENVS, bool)})


def test_act_notices_a_wrong_previous_action() -> None:
    with pytest.raises(AssertionError, match="previous_action"):
        Loop().collect(20, tamper=lambda now: {**now, "previous_action": (now["previous_action"] + 1) % 4})


def test_act_notices_mixed_up_carries() -> None:
    loop = Loop()
    loop.collect(1)
    loop.carry["episode"] = loop.carry["episode"][::-1]
    with pytest.raises(AssertionError, match="episode changed"):
        loop.collect(1)


def shift(key: str) -> Callable[[Row], None]:
    def change(batch: Row) -> None:
        batch[key] = np.roll(batch[key], 1, axis=1)

    return change


def forget_ends(batch: Row) -> None:
    batch["terminated"] = np.zeros_like(batch["terminated"])
    batch["is_first"] = np.zeros_like(batch["is_first"])


def swap_envs(batch: Row) -> None:
    batch["obs"] = batch["obs"][::-1]


@pytest.mark.parametrize(
    "change",
    [
        *map(shift, ["obs", "action", "reward", "count", "act", "is_first", "terminated"]),
        forget_ends,
        swap_envs,
    ],
)
@pytest.mark.parametrize("read", [Rollout(), Episodes()], ids=["rollout", "episodes"])
def test_hooks_notice_a_spoilt_batch(change: Callable[[Row], None], read: Rollout | Episodes) -> None:
    loop = Loop()
    loop.collect(20)
    batch = loop.read(read)
    change(batch)
    hook = loop.algorithm.update if isinstance(read, Rollout) else loop.algorithm.update_episodes
    with pytest.raises(AssertionError):
        hook(batch, Clock(), loop.rng)


def test_windows_write_back_by_row_id() -> None:
    loop = Loop()
    loop.collect(6)
    rows = loop.read(Rollout())
    batch = {key: values[:, :6] for key, values in rows.items()}
    batch["id"] = np.arange(NUM_ENVS)[:, None] * 100 + np.arange(6)
    loop.algorithm.config = CheckingAlgorithm.Config(batch_size=NUM_ENVS, updates_per_call=2)
    update = loop.algorithm.update_windows(batch, Clock(), loop.rng)
    assert update.count == 2
    assert update.write_back is not None
    assert update.write_back.ids.tolist() == batch["id"].ravel().tolist()
    assert update.write_back.columns["visits"].tolist() == [1.0] * 18


def test_state_carries_on() -> None:
    loop = Loop()
    loop.collect(5)
    loop.algorithm.update(loop.read(Rollout()), Clock(), loop.rng)
    copy = CheckingAlgorithm(CheckingAlgorithm.Config(), loop.vector.specs, loop.rng)
    copy.load_state(loop.algorithm.state())
    assert (
        copy.state()
        == loop.algorithm.state()
        == {
            "acts": 5,
            "calls": {"update": 1, "update_episodes": 0, "update_windows": 0},
        }
    )


def test_it_is_found_by_its_path() -> None:
    assert registry.load("algorithm", "tests.checking.CheckingAlgorithm") is CheckingAlgorithm
