"""Populations: which candidate acts in which env, their returns, and an algorithm that evolves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.agents.population import CANDIDATE, assign_candidates, candidate_returns, initial_candidates
from reverie.core.types import Clock, Mode
from tests.sessions import assert_same_state, checking_config, finished, started
from tests.toy_population import ToyEvolution

TOY = {"kind": "tests.toy_population.ToyEvolution"}
EPISODES = {"hooks": [{"collect": {"episodes": 16}}, {"update": {}}], "duration_cycles": 3}


def config(phase: dict[str, Any], **sections: Any) -> Any:
    env = {"id": "CartPole-v1", "num_envs": 4, "kwargs": {}}
    return checking_config(phase, env=env, algorithm=TOY, **sections)


def test_each_env_takes_every_nth_candidate() -> None:
    carry, played = initial_candidates(3), []
    for is_first in ([1, 1, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]):
        candidate = assign_candidates({"is_first": np.array(is_first, bool)}, carry, 5)
        carry = {CANDIDATE: candidate}
        played.append(candidate.tolist())
    assert played == [[0, 1, 2], [0, 1, 2], [0, 4, 2], [3, 2, 2], [3, 2, 0]]


def test_returns_per_candidate() -> None:
    batch = {
        "reward": np.array([[0, 1, 2], [0, 4, 99], [0, 5, 6.0]]),
        "candidate": np.array([[2, 2, 2], [0, 0, 0], [2, 2, 2]]),
        "valid": np.array([[True] * 3, [True, True, False], [True] * 3]),
    }  # fmt: skip
    found = candidate_returns(batch, 4)
    np.testing.assert_array_equal(found.mean, [4, np.nan, (3 + 11) / 2, np.nan])
    assert found.episodes.tolist() == [1, 0, 2, 0]


def test_envs_of_one_vector_act_with_different_parameters() -> None:
    """The return of each candidate is that of its parameters, played alone."""
    with started(config(EPISODES)) as run:
        algorithm: Any = run.session.algorithm
        candidates = algorithm.candidates.copy()
        buffer = run.session.buffers["main"]
        run.session.enter(run.session.scheduler.phases[0], None)
        run.session.collector.collect_episodes(buffer, 16)
        batch = buffer.sample(algorithm.reads["update"], {}, np.random.default_rng(0))
    assert sorted(batch[CANDIDATE][:, 0].tolist()) == list(range(16))
    assert (batch[CANDIDATE] == batch[CANDIDATE][:, :1])[batch["valid"]].all()
    acted = batch["valid"] & ~(batch["terminated"] | batch["truncated"])
    own = candidates[batch[CANDIDATE]]  # (E, T, features, actions)
    expected = np.einsum("etf,etfa->eta", batch["obs"], own).argmax(-1)
    assert (batch["action"] == expected)[acted].all()
    other = np.einsum("etf,etfa->eta", batch["obs"], candidates[(batch[CANDIDATE] + 1) % 16]).argmax(-1)
    assert (batch["action"] != other)[acted].any()


def test_a_population_evolves() -> None:
    """A random linear policy holds the pole for about 40 steps."""
    phase = {**EPISODES, "duration_cycles": 8}
    with finished(config(phase, evaluate={"final_episodes": 0})) as run:
        assert run.values("update/fewest_episodes") == [1] * 8  # each candidate has played once in each generation
        fitness = run.values("update/fitness_mean")
        assert fitness[-1] > 195 > 100 > fitness[0]
        assert run.orchestrator.evaluate(5)["return_mean"] > 195


@pytest.mark.parametrize("hook", [{"episodes": 16}, {"rows": 120}])
@pytest.mark.parametrize("env_steps", [1, 400, 900])
def test_a_resumed_run_continues_with_the_same_candidates(hook: dict[str, int], env_steps: int) -> None:
    """With rows instead of episodes a run stops within episodes, which their candidates have to finish."""
    settings = config({"hooks": [{"collect": hook}, {"update": {}}], "duration_steps": 1200})
    with finished(settings) as whole, started(settings) as first, started(settings) as second:
        first.stop_after(env_steps)
        second.session.load_state(first.session.state())
        assert second.orchestrator.run()
        assert_same_state(second.session.state(), whole.session.state())


def test_evaluation_plays_no_candidate_and_changes_nothing() -> None:
    with started(config(EPISODES, evaluate={"sample": True})) as run:
        before = run.session.algorithm.state()
        run.orchestrator.evaluate(3)  # evaluate.sample plays candidates, as training does
        assert_same_state(run.session.algorithm.state(), before)
        algorithm = run.session.algorithm
        assert isinstance(algorithm, ToyEvolution)
        now = {"obs": np.ones((2, 4), np.float32), "is_first": np.ones(2, bool)}
        _, _, extras = algorithm.act(now, algorithm.initial_carry(2), Clock(), np.random.default_rng(0), Mode.EVALUATE)
        assert extras == {}
