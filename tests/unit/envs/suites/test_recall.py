from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from reverie.core.types import Array
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs
from reverie.envs.suites.reverie.recall import RecallEnv

Policy = Callable[[Array], int]


def play(env: RecallEnv, cue: int, policy: Policy) -> tuple[list[tuple[float, ...]], float]:
    """What was shown in an episode with this cue, and the return."""
    observation, _ = next(found for found in (env.reset(seed=seed) for seed in range(1000)) if found[0][cue])
    shown, total, ended = [tuple(observation)], 0.0, False
    while not ended:
        observation, reward, ended, _, _ = env.step(np.int64(policy(observation)))
        shown.append(tuple(observation))
        total += reward
    return shown, total


def test_an_episode() -> None:
    shown, total = play(RecallEnv(cues=3, delay=2), 1, lambda _: 1)
    assert shown == [(0, 1, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 0)]
    assert total == 1
    assert play(RecallEnv(cues=3, delay=2), 1, lambda _: 2)[1] == 0


def test_no_policy_without_memory_beats_chance() -> None:
    """All of them, by playing: an action for each observation that exists. A random one is a mixture of these."""
    env = RecallEnv(cues=3, delay=1)
    kinds = [*map(tuple, np.eye(4)), (0.0,) * 4]
    for actions in itertools.product(range(3), repeat=len(kinds)):
        table = dict(zip(kinds, actions, strict=True))
        right = [play(env, cue, lambda shown, table=table: table[tuple(shown)])[1] for cue in range(3)]  # type: ignore[misc]
        assert sum(right) == 1  # one cue in three


def test_the_cue_leaves_no_trace() -> None:
    env = RecallEnv()
    streams = {tuple(play(env, cue, lambda _, cue=cue: cue)[0][1:]) for cue in range(4)}  # type: ignore[misc]
    assert len(streams) == 1


def test_with_memory_every_answer_can_be_right() -> None:
    seen: list[int] = []

    def policy(observation: Array) -> int:
        if observation[:-1].any():
            seen.append(int(observation.argmax()))
        return seen[-1]

    env = RecallEnv()
    assert [play(env, cue, policy)[1] for cue in range(4)] == [1, 1, 1, 1]


def test_all_cues_come_up() -> None:
    env = RecallEnv()
    cues = [int(env.reset(seed=seed)[0].argmax()) for seed in range(400)]
    assert all(70 <= cues.count(cue) <= 130 for cue in range(4))


def test_it_is_registered_and_drawn() -> None:
    config = EnvConfig(id="Reverie/Recall-v0", kwargs={"cues": 6})
    assert make_specs(config).observations["obs"].shape == (7,)
    env = make_env(config, render_mode="rgb_array")
    env.reset(seed=1)
    assert env.render().shape == (32, 7 * 32, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", [{"cues": 1}, {"delay": -1}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cues must be 2 or more"):
        RecallEnv(**settings)
