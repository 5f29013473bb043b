"""The loop of acting and stepping, and the collector as an actor that returns blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Clock, Mode, Row
from reverie.training.interaction import ControlledPlayer, Interaction, PolicyPlayer, RandomPlayer
from tests.sessions import Run, assert_same_state, checking_config, started

ROWS: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update_windows": {}}], "duration_cycles": 2}
REPLAY = {"main": {"kind": "replay", "capacity": 300, "min_rows": 1}}


class Fixed:
    """A controller whose actions differ from the agent's."""

    def act(self, now: Row, rng: np.random.Generator) -> Any:
        return np.full(len(now["is_first"]), int(rng.integers(2)))


def play(run: Run, player: Any, rows: int) -> list[Row]:
    interaction = Interaction(run.session.vector, player)
    interaction.restart()
    completed = []
    for _ in range(rows):
        completed.append(interaction.act())
        interaction.step(completed[-1]["action"])
    return completed


@pytest.mark.parametrize("kind", ["policy", "controlled", "random"])
def test_a_completed_row_holds_what_arrived_and_what_was_done(kind: str) -> None:
    with started(checking_config(ROWS, buffers=REPLAY)) as run:
        own = PolicyPlayer.at(run.session.policy, Mode.COLLECT, Clock(), make_generator(0))
        players = {
            "policy": own,
            "controlled": ControlledPlayer(own, Fixed(), lambda: make_generator(1)),
            "random": RandomPlayer(run.session.policy.specs, make_generator(2)),
        }
        rows = play(run, players[kind], 12)
    assert all(row["is_first"].all() for row in rows[:1])
    for before, after in pairwise(rows):
        np.testing.assert_array_equal(after["previous_action"], before["action"])
    assert ("count" in rows[0]) == (kind != "random")  # extras of the agent


def test_a_block_holds_the_rows_that_buffers_get() -> None:
    config = checking_config(ROWS, buffers=REPLAY)
    with started(config) as one, started(config) as other:
        for run in (one, other):
            run.session.enter(run.session.scheduler.phases[0], None)
        block = one.session.collector.collect(None, version=5, rows=24)
        for row in block.moments():
            one.session.buffers["main"].add(row)
        other.session.collector.collect_rows(other.session.buffers["main"], 24)
        assert (len(block), block.policy_version) == (8, 5)
        assert_same_state(block.arriving, other.session.collector.now)
        assert_same_state(one.session.state(), other.session.state())


def test_an_actor_acts_with_the_weights_it_is_given() -> None:
    with (
        started(checking_config(ROWS, buffers=REPLAY)) as learner,
        started(checking_config(ROWS, buffers=REPLAY)) as actor,
    ):
        for run in (learner, actor):
            run.session.enter(run.session.scheduler.phases[0], None)
        learner.algorithm.acts = 40
        block = actor.session.collector.collect(learner.session.policy.state(), version=1, rows=6)
    assert block.rows["act"].tolist() == [[40, 41]] * 3


def test_arriving_rows_say_which_envs_rest() -> None:
    """A planner plans for no env that rests."""
    with started(checking_config(ROWS, buffers=REPLAY)) as run:
        interaction = Interaction(run.session.vector, RandomPlayer(run.session.policy.specs, make_generator(0)))
        assert "valid" not in interaction.restart()
        assert "valid" not in interaction.step(interaction.act()["action"])
        active = np.array([True, False, True])
        np.testing.assert_array_equal(interaction.step(interaction.act()["action"], active)["valid"], active)
        assert "valid" not in interaction.step(interaction.act()["action"])
