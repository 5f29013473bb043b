"""Action chunks, action scaling and EMA weights: alone, and in a policy that is trained, saved, loaded and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.agents.action_chunks import ActionChunks
from reverie.agents.action_scaling import ActionScaling
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec
from reverie.core.types import Array, Clock, Mode, Row
from reverie.policy import Policy
from reverie.training.interaction import Interaction, PolicyPlayer
from tests.sessions import Run, assert_same_state, checking_config, finished, started
from tests.toy_chunks import ToyChunks

BOX = ActionSpec("continuous", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
SCALAR = ActionSpec("discrete", (), "int64", (100,))


def rows(*first: int, obs: int = 0) -> Row:
    return {"is_first": np.array(first, bool), "obs": np.arange(len(first)) + 10 * obs}


def count_up(now: Row) -> Array:
    """Chunks (M, 4) that show which observation they were planned from."""
    planned: Array = now["obs"][:, None] + 100 * np.arange(4)
    return planned


def test_chunks_are_executed_action_by_action_and_start_anew_with_episodes() -> None:
    chunks = ActionChunks(3, SCALAR)
    carry, actions = chunks.initial_carry(2), []
    for step, first in enumerate(([1, 1], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0])):
        action, carry = chunks.next_actions(rows(*first, obs=step), carry, count_up)
        actions.append(action.tolist())
    assert actions == [[0, 1], [100, 101], [200, 21], [30, 121], [130, 221], [230, 51]]


def test_only_envs_without_actions_plan() -> None:
    chunks, planned = ActionChunks(3, SCALAR), []
    carry = chunks.initial_carry(3)

    def plan(now: Row) -> Array:
        planned.append(now["obs"].tolist())
        return count_up(now)

    for first in ([1, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]):
        _, carry = chunks.next_actions(rows(*first), carry, plan)
    assert planned == [[0, 1, 2], [1], [0, 2]]


def test_the_carry_is_not_changed_in_place() -> None:
    chunks = ActionChunks(2, SCALAR)
    carry = chunks.initial_carry(1)
    before = {key: value.copy() for key, value in carry.items()}
    chunks.next_actions(rows(1, obs=5), carry, count_up)
    assert_same_state(carry, before)


def test_dropped_queues_are_planned_anew() -> None:
    chunks = ActionChunks(3, SCALAR)
    _, carry = chunks.next_actions(rows(1), chunks.initial_carry(1), count_up)
    action, _ = chunks.next_actions(rows(0, obs=7), chunks.drop(carry), count_up)
    assert action.tolist() == [70]


def test_actions_are_scaled_to_the_range_of_the_data() -> None:
    scaling = ActionScaling(BOX)
    actions = np.array([[[0.1, 0.3], [0.5, 0.3], [9, 9], [7, 7]]], np.float32)
    ends = np.array([[False, False, True, False]])
    valid = np.array([[True, True, True, False]])
    scaling.fit({"action": actions, "terminated": ends, "truncated": ~ends & False, "valid": valid})
    scaled = scaling.scale(np.array([[0.1, 0.3], [0.2, 0.3], [0.5, 0.3]]))
    np.testing.assert_allclose(scaled, [[-1, 0], [-0.5, 0], [1, 0]], atol=1e-6)
    found = scaling.unscale(np.array([[-1, 0], [0, 1], [5, -5]]))
    np.testing.assert_allclose(found, [[0.1, 0.3], [0.3, 0.3], [0.5, 0.3]], rtol=1e-6)
    other = ActionScaling(BOX)
    assert other.unscale(np.array([0.25, -0.5])).tolist() == [0.25, -0.5]
    other.load_state(scaling.state())
    assert_same_state(other.state(), scaling.state())


def config(**sections: Any) -> Any:
    """Random actions, then chunks learned from them; episodes have ten steps, so chunks of four are cut short."""
    env = {"id": "Pendulum-v1", "num_envs": 3, "kwargs": {}, "max_episode_steps": 10}
    return checking_config(
        {"hooks": [{"collect": {"rows": 60}}], "controller": "random", "duration_cycles": 1},
        {"hooks": [{"collect": {"rows": 24}}, {"update": {"updates": 3}}], "duration_cycles": 6},
        env=env, algorithm={"kind": "tests.toy_chunks.ToyChunks"}, **sections,
        buffers={"main": {"kind": "replay", "capacity": 1000, "min_rows": 20}}, normaliser={"observation": "rolling"},
    )  # fmt: skip


def algorithm_of(run: Run) -> ToyChunks:
    algorithm: Any = run.session.algorithm
    assert isinstance(algorithm, ToyChunks)
    return algorithm


def play(policy: Policy, run: Run, steps: int, mode: Mode) -> Array:
    """The actions (steps, N) of a policy in new episodes."""
    vector = run.evaluator.make_vector(2)
    interaction = Interaction(vector, PolicyPlayer.at(policy, mode, Clock(), make_generator("unused")))
    interaction.restart()
    actions = []
    for _ in range(steps):
        actions.append(interaction.act()["action"])
        interaction.step(actions[-1])
    vector.close()
    return np.stack(actions)


def test_a_policy_with_chunks_learns_and_is_saved_whole(tmp_path: Path) -> None:
    with finished(config()) as run:
        losses = run.values("update/loss")
        assert np.mean(losses[-2:]) < np.mean(losses[:2])
        low, high = algorithm_of(run).scaling.low, algorithm_of(run).scaling.high
        assert -1 <= low < -0.8 < 0.8 < high <= 1  # Pendulum's actions are scaled, and 60 were drawn uniformly
        assert (low, high) != (-1, 1)
        policy = run.session.policy
        policy.save(tmp_path / "policy", {})
        loaded, _ = Policy.load(tmp_path / "policy")
        for mode in (Mode.EVALUATE, Mode.COLLECT):
            own = play(policy, run, 15, mode)
            np.testing.assert_array_equal(play(loaded, run, 15, mode), own)
            np.testing.assert_array_equal(play(policy.copy(), run, 15, mode), own)
        assert (play(policy, run, 15, Mode.EVALUATE) != play(policy, run, 15, Mode.COLLECT)).any()


def test_evaluation_plans_with_the_averaged_weights() -> None:
    with finished(config()) as run:
        algorithm = algorithm_of(run)
        now = {"obs": np.ones((2, 3), np.float32), "is_first": np.ones(2, bool)}
        for mode, network in ((Mode.EVALUATE, algorithm.ema.average), (Mode.COLLECT, algorithm.network)):
            carry = algorithm.initial_carry(2)
            action, _, _ = algorithm.act(now, carry, Clock(), make_generator("unused"), mode)
            np.testing.assert_array_equal(action, algorithm.plan(network, now)[:, 0])


@pytest.mark.parametrize("env_steps", [30, 70, 101, 134])
def test_a_resumed_run_continues_its_chunks(env_steps: int) -> None:
    with finished(config()) as whole, started(config()) as first, started(config()) as second:
        first.stop_after(env_steps)
        second.session.load_state(first.session.state())
        assert second.orchestrator.run()
        assert_same_state(second.session.state(), whole.session.state())
