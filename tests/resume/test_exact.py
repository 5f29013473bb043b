"""A run that is stopped and goes on in a fresh session from disk equals one that was left alone, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie import api
from reverie.build import build
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.log.sinks import read_jsonl
from tests.resume.pieces import CHECKING, PPO, assert_equal_runs, train, train_in_pieces

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

REPLAY = (
    "env.vector=sync", "phases.prefill.duration_steps=64", "buffers.main.min_rows=32",
    "phases.learn.evaluate={episodes: 2, every_steps: 100}", "evaluate.final_episodes=2",
    "checkpoint.every_steps=50", "algorithm.batch_size=16",
)  # fmt: skip
ALGORITHMS = {
    "ppo": PPO,
    "dqn": ("CartPole-v1:dqn", *REPLAY, "phases.learn.collect.rows=16", "phases.learn.update.updates=4"),
    "sac": ("Pendulum-v1:sac", *REPLAY, "phases.learn.collect.rows=4"),
    "dreamer": (
        "CartPole-v1:dreamer",
        "debug",
        *REPLAY,
        "env.num_envs=2",
        "algorithm.batch_size=4",
        "phases.prefill.collect.rows=32",
        "phases.learn.collect.rows=8",
    ),
    "planet": (
        "Pendulum-v1:planet", "env.vector=sync", "env.max_episode_steps=80", "algorithm.batch_length=8",
        "algorithm.batch_size=2", "phases.learn.update.updates=2", "phases.prefill.collect.episodes=2",
        "algorithm.planner={horizon: 3, samples: 8, elites: 2, iterations: 2, warm_start: true}", "**.units=8",
        "algorithm.model.rssm={deter: 8, hidden: 8, stoch: 4}", "buffers.main.chunk_rows=16",
        "phases.learn.evaluate={episodes: 2, every_steps: 100}", "evaluate.final_episodes=2",
        "checkpoint.every_steps=50",
    ),
    "tdmpc": (
        "Pendulum-v1:tdmpc", "env.vector=sync", "algorithm.batch_size=4", "**.units=8",
        "algorithm.planner={samples: 8, elites: 2, iterations: 2, policy_samples: 2}",
        "algorithm.planner.growing_horizon={start: 1, end: 5, from: 0, to: 120}", "phases.prefill.duration_steps=40",
        "phases.prefill.collect.rows=40", "phases.pretrain.duration_updates=4", "phases.pretrain.update.updates=2",
        "phases.learn.update.updates_per_step=0.2", "phases.learn.evaluate={episodes: 1, every_steps: 100}",
        "evaluate.final_episodes=1", "env.max_episode_steps=40",
    ),
    "tdmpc2": (
        "Pendulum-v1:tdmpc2", "size1m", *REPLAY, "algorithm.batch_size=4", "**.units=8",
        "algorithm.planner={samples: 8, elites: 2, iterations: 2, policy_samples: 2}", "env.max_episode_steps=40",
        "phases.prefill.duration_steps=40", "phases.pretrain.duration_updates=4", "phases.pretrain.update.updates=2",
        "phases.learn.collect.rows=8", "phases.learn.update={updates: 2, updates_per_step: null}",
        "phases.learn.evaluate={episodes: 1, every_steps: 100}", "evaluate.final_episodes=1",
    ),
}  # fmt: skip
"""How each algorithm is made small; one that is not listed runs as its preset says."""
ENVS = ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Reverie/Motion-v0")

PHASES = {
    "phases": [
        {"name": "prefill", "controller": "random", "hooks": [{"collect": {"rows": 16}}], "duration_steps": 40},
        {
            "name": "loop",
            "repeat": 2,
            "phases": [
                {
                    "name": "longer",
                    "hooks": [{"collect": {"rows": 24}}, {"update": {}}],
                    "duration_steps": 60,
                    "overrides": {"env.kwargs": {"length": 14, "varied": True}},
                    "keep": ["algorithm", "normaliser"],
                },
                {
                    "name": "often",
                    "hooks": [
                        {"collect": {"rows": 24}},
                        {"update": {"every_cycles": 2}},
                        {"evaluate": {"episodes": 2, "every_steps": 30}},
                    ],
                    "duration_cycles": 3,
                },
            ],
        },
        {"name": "last", "hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_updates": 3},
    ]
}
CASES = {
    "checking agent, sync": CHECKING,
    "checking agent, worker processes": (*CHECKING, "env.vector=process", "env.workers=2"),
    "checking agent, episodes": (
        *CHECKING, "phases.learn.hooks=[{collect: {episodes: 8}}, update_episodes]", "phases.learn.duration_steps=300",
    ),
    "checking agent, replay": (
        *CHECKING, "buffers.main={kind: replay, capacity: 64, min_rows: 24}", "algorithm.batch_size=2",
        "phases.learn.hooks=[{collect: {rows: 24}}, {update_windows: {updates: 2}}]", "phases.learn.duration_steps=300",
    ),
    "loops, overrides, a random controller": (*CHECKING, f"phases={json.dumps(PHASES['phases'])}"),
    "native vector": (*PPO, "env.vector=native"),
    "normalisers": (*PPO, "normaliser.observation=rolling", "normaliser.reward=true"),
    "smooth noise and an overriding phase": (
        "Pendulum-v1:ppo", "env.vector=sync", "evaluate.final_episodes=1", "checkpoint.every_steps=100",
        "phases=" + json.dumps([
            {"name": "a", "hooks": [{"collect": {"rows": 64}}, {"update": {}}], "duration_steps": 300},
            {
                "name": "b", "hooks": [{"collect": {"rows": 64}}, {"update": {}}], "duration_steps": 200,
                "overrides": {"algorithm.learning_rate": 1e-5, "algorithm.epochs": 1}, "keep": ["normaliser"],
            },
        ]), "algorithm.epochs=2",
    ),
    "recurrent": (
        *PPO, "normaliser.observation=rolling",
        "algorithm.network={kind: gru, units: 8, encoder: {kind: mlp, units: [8]}}",
    ),
    "transformer": (
        *PPO, "algorithm.network={kind: transformer, units: 8, heads: 2, context: 9, encoder: {kind: mlp, units: [8]}}",
    ),
    "dqn that remembers": (
        "CartPole-v1:dqn", *REPLAY, "env.num_envs=2", "phases.prefill.collect.rows=32", "algorithm.batch_size=4",
        "phases.learn.collect.rows=16", "phases.learn.update.updates=4", "algorithm.n_step=2",
        "algorithm.network={kind: gru, units: 8, encoder: {kind: mlp, units: [8]}}",
        "algorithm.sequence={length: 12, burn_in: 3}", "buffers.main.sampler.kind=prioritised",
    ),
    "sac that remembers": (
        "Pendulum-v1:sac", *REPLAY, "phases.learn.collect.rows=4", "algorithm.units=[8]", "algorithm.batch_size=4",
        "algorithm.network={kind: lstm, units: 8, encoder: {kind: mlp, units: [8]}}",
        "algorithm.sequence={length: 12, burn_in: 3}",
    ),
    "dreamer that plans": (
        *ALGORITHMS["dreamer"],
        "algorithm.planner={kind: mppi, samples: 8, policy_samples: 2, elites: 2, iterations: 2}",
    ),
    "matmul by oneDNN": (
        "CartPole-v1:dqn", *REPLAY, "phases.learn.collect.rows=16", "phases.learn.update.updates=4",
        "algorithm.batch_size=64", "backend.engine=torch", "backend.matmul=onednn",
    ),
    "early stop": (*PPO, "early_stop=solved", "env.spec.solved_at=9", "evaluate.warmup_steps=500"),
}  # fmt: skip
STEPS = {"dreamer that plans": 120,
         "checking agent, sync": 300, "checking agent, worker processes": 300, "native vector": 600, "normalisers": 600,
         "recurrent": 300, "transformer": 300, "dqn that remembers": 200, "sac that remembers": 160,
         "matmul by oneDNN": 200, "early stop": 1500}  # fmt: skip


def first_that_fits(kind: str) -> str:
    """An env that the algorithm can act in."""
    for env in ENVS:
        try:
            build(api.make_config(f"{env}:{kind}")).close()
            return f"{env}:{kind}"
        except ConfigError:
            continue
    raise AssertionError(f"{kind} fits none of {ENVS}: name a spec in ALGORITHMS")


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_goes_on_exactly(case: str, tmp_path: Path) -> None:
    whole = train(CASES[case], tmp_path / "whole", STEPS.get(case))
    stops = [3, 6] if "processes" in case else [3, 5, 4, 9]
    pieces = train_in_pieces(CASES[case], tmp_path / "pieces", stops, STEPS.get(case))
    assert_equal_runs(pieces, whole)
    assert len(read_jsonl(pieces / "resumes.jsonl")) >= 2


@pytest.mark.parametrize("kind", registry.kinds("algorithm"))
def test_every_algorithm_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    words = ALGORITHMS.get(kind) or (first_that_fits(kind), "checkpoint.every_steps=50", "evaluate.final_episodes=2")
    whole = train(words, tmp_path / "whole", steps=200)
    pieces = train_in_pieces(words, tmp_path / "pieces", [4, 9, 6, 11], steps=200)
    assert_equal_runs(pieces, whole)
    updates = [line["updates"] for line in read_jsonl(whole / "metrics.jsonl")]
    assert updates[-1] > 0, "the algorithm learnt nothing, so nothing was shown"


def test_a_run_may_stop_after_every_step(tmp_path: Path) -> None:
    """In loops, overridden phases and evaluations: each step runs in a session of its own."""
    words = (*CHECKING, f"phases={json.dumps(PHASES['phases'])}")
    whole = train(words, tmp_path / "whole")
    cycles = read_jsonl(whole / "metrics.jsonl")[-1]["cycles"]
    pieces = train_in_pieces(words, tmp_path / "pieces", [1] * (3 * cycles))
    assert_equal_runs(pieces, whole)
    assert len(read_jsonl(pieces / "resumes.jsonl")) >= 2 * cycles


def test_early_stop_ends_where_it_ended_before(tmp_path: Path) -> None:
    """Also when the run is resumed at the very moment at which it was solved but had not said so yet."""
    case = CASES["early stop"]
    whole = train(case, tmp_path / "whole", 1500)
    cycles = read_jsonl(whole / "metrics.jsonl")[-1]["cycles"]
    assert 0 < api.find(str(whole)).status["env_steps"] < 1000, "it did not end early"
    for stop in range(3 * cycles, 3 * cycles + 4):
        assert_equal_runs(train_in_pieces(case, tmp_path / str(stop), [stop], 1500), whole)


def test_a_longer_budget_equals_the_longer_run(tmp_path: Path) -> None:
    """Schedules fall over the horizon that the run was created with, so the long run names the same one."""
    words = (*PPO, "horizon_steps=400", "log.every_steps=50")
    long = train(words, tmp_path / "long", steps=800)
    short = train(words, tmp_path / "short", steps=400)
    resumed = api.resume(str(short), steps=800)
    assert resumed.state == "finished"
    assert_equal_runs(short, long)


def test_a_loaded_session_is_not_the_old_one(tmp_path: Path) -> None:
    """The comparison can fail: another seed gives other bytes everywhere that matters."""
    first, second = train(PPO, tmp_path / "a", steps=300), train(PPO, tmp_path / "b", steps=300, seed=2)
    with pytest.raises(AssertionError, match=r"metrics\.jsonl"):
        assert_equal_runs(first, second)
