"""Evaluation: which episodes are played, and how their scores are summed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError
from reverie.core.types import Clock
from reverie.training import evaluator
from reverie.training.evaluator import (
    EpisodeScore,
    EvaluationStopped,
    bootstrap_interval,
    interquartile_mean,
    summarise,
)
from tests.sessions import checking_config, started


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 100.0])) == 2.5
    # Five values: 1.25 are cut at each end, so 2 and 4 count three quarters: (0.75*2 + 3 + 0.75*4) / 2.5.
    assert interquartile_mean(np.array([9.0, 2.0, 3.0, 4.0, 0.0])) == pytest.approx(3.0)
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 10.0, 50.0])) == pytest.approx(13.0 / 3)
    assert interquartile_mean(np.array([7.0])) == 7.0


def test_bootstrap_interval_repeats_and_covers_the_mean() -> None:
    values = np.arange(100.0)
    low, high = bootstrap_interval(values, seed=3)
    assert (low, high) == bootstrap_interval(values, seed=3)
    # The deviation of the mean is 28.9 / 10, so the interval is about 49.5 +- 5.7.
    assert low == pytest.approx(43.8, abs=1.0)
    assert high == pytest.approx(55.2, abs=1.0)


def test_summary_has_all_numbers() -> None:
    scores = [EpisodeScore(0, 1.0, 10, {"log/success": 0.0}), EpisodeScore(1, 3.0, 20, {"log/success": 1.0})]
    summary = summarise(scores, seed=0)
    assert summary["return_mean"] == 2.0
    assert summary["return_std"] == 1.0
    assert (summary["return_min"], summary["return_max"]) == (1.0, 3.0)
    assert summary["length_mean"] == 15.0
    assert summary["episodes"] == 2
    assert summary["log/success"] == 0.5
    assert 1.0 <= summary["return_low"] <= summary["return_high"] <= 3.0


EPISODES: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 2}


def test_episodes_start_from_the_same_seeds_every_time() -> None:
    with started(checking_config(EPISODES, env={"log_keys": ["steps"]})) as run:
        first = run.evaluator.evaluate(run.session.policy, 7, Clock())
        run.orchestrator.run()
        assert run.evaluator.evaluate(run.session.policy, 7, Clock(env_steps=9)) == first
    assert [score.episode for score in first] == list(range(7))
    assert len({score.length for score in first}) > 1
    assert all(score.total == score.length * (score.length + 1) / 2 for score in first)
    assert all(score.logs == {"log/steps": score.length} for score in first)


@pytest.mark.parametrize("num_envs", [1, 2, 7, 20])
def test_the_number_of_envs_does_not_change_which_episodes_are_played(num_envs: int) -> None:
    config = checking_config(EPISODES, evaluate={"num_envs": num_envs})
    with started(config) as run, started(checking_config(EPISODES)) as other:
        scores = run.evaluator.evaluate(run.session.policy, 7, Clock())
        assert scores == other.evaluator.evaluate(other.session.policy, 7, Clock())


def test_sampled_evaluations_ask_as_collection_does() -> None:
    with started(checking_config(EPISODES, evaluate={"sample": True})) as run:
        run.evaluator.evaluate(run.session.policy, 3, Clock())
        assert run.algorithm.acts > 0
    with started(checking_config(EPISODES)) as run:
        run.evaluator.evaluate(run.session.policy, 3, Clock())
        assert run.algorithm.acts == 0


def test_evaluation_and_collection_play_different_episodes() -> None:
    with started(checking_config(EPISODES, env={"num_envs": 1, "kwargs": {"length": 1000, "varied": True}})) as run:
        evaluated = [score.length for score in run.evaluator.evaluate(run.session.policy, 1, Clock())]
        run.session.enter(run.session.scheduler.phases[0], None)
        run.session.collector.collect_episodes(run.session.buffers["main"], 1)
        assert [score["length"] for score in run.scores] != evaluated


def test_a_request_to_stop_breaks_an_evaluation_off() -> None:
    with started(checking_config(EPISODES)) as run:
        answers = iter([False, False, True])
        with pytest.raises(EvaluationStopped):
            run.evaluator.evaluate(run.session.policy, 7, Clock(), lambda: next(answers))
        again = run.evaluator.evaluate(run.session.policy, 7, Clock())
        with started(checking_config(EPISODES)) as other:
            assert again == other.evaluator.evaluate(other.session.policy, 7, Clock())


UNLIMITED = "reverie.envs.suites.reverie.counting.CountingEnv"


def test_evaluation_cuts_the_episodes_of_an_env_without_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may find a place where it stands still for ever."""
    monkeypatch.setattr(evaluator, "LONGEST_EPISODE", 7)
    env = {"id": UNLIMITED, "kwargs": {"length": 2000}}
    with started(checking_config(EPISODES, env=env)) as run:
        scores = run.evaluator.evaluate(run.session.policy, 2, Clock())
    assert [score.length for score in scores] == [7, 7]


def test_a_run_that_would_evaluate_endless_episodes_is_refused_at_once() -> None:
    spec, silent = (
        f"{UNLIMITED}:ppo",
        ["evaluate.final_episodes=0", "phases.learn.hooks=[{collect: {rows: 64}}, update]"],
    )
    endless = ["env.vector=sync", "env.kwargs.length=2000"]
    for words in ([], silent[:1], silent[1:]):
        with pytest.raises(ConfigError, match=r"no time limit(.|\n)*env\.max_episode_steps"):
            make_config(spec, [*endless, *words])
    assert make_config(spec, [*endless, *silent]).env.max_episode_steps is None
    assert make_config(spec, [*endless, "env.max_episode_steps=50"]).env.max_episode_steps == 50


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_an_env_that_ends_its_episodes_itself_needs_no_time_limit(ends: str) -> None:
    config = make_config(f"{UNLIMITED}:ppo", ["env.vector=sync", f"env.kwargs.ends={ends}"])
    assert config.env.max_episode_steps is None
