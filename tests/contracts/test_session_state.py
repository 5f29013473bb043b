"""Everything that collect and update change is restored from ``state()``. A forgotten attribute fails here."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.core.counters import Counters
from reverie.data.replay import ReplayBuffer
from reverie.store.trees import SealedStore, read_tree, write_tree
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session
from tests.contracts.object_leaves import object_leaves

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

CASES = {
    "ppo": ("CartPole-v1:ppo", "phases.learn.collect.rows=64", "algorithm.epochs=2"),
    "ppo with a normaliser and smooth noise": (
        "Pendulum-v1:ppo", "env.num_envs=2", "phases.learn.collect.rows=100", "algorithm.epochs=1",
        "normaliser.observation=rolling", "normaliser.reward=true",
    ),
    "ppo with a convolution": (
        "Reverie/Motion-v0:ppo", "env.num_envs=2", "phases.learn.collect.rows=32", "algorithm.epochs=1",
        "algorithm.optimizer.kind=adamw",
    ),
    "ppo, recurrent": (
        "Reverie/Recall-v0:ppo_gru", "env.num_envs=3", "phases.learn.collect.rows=24", "algorithm.epochs=1",
        "algorithm.shared_trunk=false", "algorithm.network.units=8",
    ),
    "ppo with a transformer": (
        "Reverie/Recall-v0:ppo_transformer", "env.num_envs=3", "phases.learn.collect.rows=24",
        "algorithm.epochs=1", "algorithm.network.context=4",
    ),
    "reinforce, recurrent": (
        "Reverie/Recall-v0:reinforce", "env.num_envs=4", "algorithm.network={kind: lstm, units: 8}",
    ),
    "dqn with all options": (
        "CartPole-v1:dqn", "phases.prefill.duration_steps=50", "phases.prefill.collect.rows=50",
        "algorithm.batch_size=8",
        "buffers.main.min_rows=20", "phases.learn.collect.rows=16", "phases.learn.update.updates=2",
        "algorithm.target_every=2", "algorithm.n_step=2", "algorithm.noisy=true", "algorithm.dueling=true",
        "algorithm.head.kind=categorical", "algorithm.network.units=[8]", "buffers.main.sampler.kind=prioritised",
    ),
    "dqn, recurrent": (
        "Reverie/Recall-v0:dqn_gru", "env.num_envs=3", "phases.prefill.duration_steps=60",
        "phases.prefill.collect.rows=60",
        "buffers.main.min_rows=40", "algorithm.batch_size=4", "phases.learn.collect.rows=12",
        "algorithm.network.units=8", "algorithm.sequence={length: 9, burn_in: 2}",
        "buffers.main.sampler.kind=prioritised",
    ),
    "dqn with hindsight": (
        "tests.toy_goals.BitFlipping:dqn", "phases.prefill.duration_steps=50", "phases.prefill.collect.rows=50",
        "algorithm.batch_size=8", "buffers.main.min_rows=20", "phases.learn.collect.rows=16", "algorithm.n_step=2",
        "algorithm.network.units=[8]", "buffers.main.hindsight.ratio=0.8", "env.num_envs=2",
    ),
    "sac with a transformer": (
        "Pendulum-v1:sac", "phases.prefill.duration_steps=100", "algorithm.batch_size=4", "algorithm.units=[8]",
        "algorithm.network={kind: transformer, units: 8, heads: 2, context: 4}", "algorithm.norm=layer",
    ),
    "dreamer": (
        "CartPole-v1:dreamer", "debug", "env.num_envs=2", "phases.prefill.duration_steps=40",
        "phases.prefill.collect.rows=40", "buffers.main.capacity=64", "phases.learn.collect.rows=8",
    ),
    "dreamer that plans": (
        "CartPole-v1:dreamer", "debug", "env.num_envs=2", "phases.prefill.duration_steps=40",
        "phases.prefill.collect.rows=40", "buffers.main.capacity=64", "phases.learn.collect.rows=8",
        "algorithm.planner={kind: mppi, samples: 8, policy_samples: 2, elites: 2, iterations: 2}",
    ),
    "planet": (
        "Pendulum-v1:planet", "env.max_episode_steps=48", "algorithm.batch_length=8", "algorithm.batch_size=2",
        "phases.learn.update.updates=2", "phases.prefill.collect.episodes=2", "buffers.main.capacity=40",
        "algorithm.planner={horizon: 3, samples: 8, elites: 2, iterations: 2, warm_start: true}", "**.units=8",
        "algorithm.model.rssm={deter: 8, hidden: 8, stoch: 4}",
    ),
    "sac": ("Pendulum-v1:sac", "phases.prefill.duration_steps=100", "algorithm.batch_size=8", "algorithm.units=[8]"),
    "sac with images and discrete actions": (
        "Reverie/Motion-v0:sac", "env.num_envs=1", "phases.prefill.duration_steps=40", "phases.prefill.collect.rows=40",
        "buffers.main.capacity=16", "algorithm.batch_size=4", "algorithm.units=[8]", "algorithm.image_features=8",
    ),
    "tdmpc": (
        "Pendulum-v1:tdmpc", "env.max_episode_steps=20", "phases.prefill.duration_steps=30",
        "phases.prefill.collect.rows=40", "phases.pretrain.duration_updates=1", "phases.pretrain.update.updates=1",
        "algorithm.batch_size=8", "**.units=8", "phases.learn.update.updates_per_step=0.2",
        "algorithm.planner={samples: 8, policy_samples: 2, elites: 2, iterations: 2}",
    ),
    "tdmpc2": (
        "Pendulum-v1:tdmpc2", "debug", "phases.prefill.duration_steps=30", "phases.prefill.collect.rows=40",
        "phases.pretrain.duration_updates=1", "phases.pretrain.update.updates=1", "algorithm.episodic=true",
    ),
    "reinforce": ("CartPole-v1:reinforce", "algorithm.network.units=[8]"),
    "q-learning": ("Taxi-v4:qlearning",),
    "q-learning with worker processes": ("Taxi-v4:qlearning", "env.vector=process", "env.workers=2"),
    "sarsa": ("Taxi-v4:qlearning", "algorithm.target=sarsa", "phases.learn.collect.rows=24"),
    "bandit with a time limit": (
        "Bandit/Drifting-v0:thompson", "env.max_episode_steps=5", "phases.learn.collect.rows=7",
    ),
}  # fmt: skip

UNSAVED = ("/_spans/", "/rows/_columns/", "/rows/flags/", "/rows/episode_steps/", "/rows/bounds/", "/sampler/_trees/")
"""Paths in a replay buffer that are compared by row instead: its arrays have empty slots, and the rest is derived."""


def is_void(path: str, values: dict[str, str]) -> bool:
    """Gradients are overwritten before use. An env that waits for its reset has no state but its episode number."""
    episode = "/".join(path.split("/")[:3])
    waits = path.startswith("/_episodes/") and values[f"{episode}/pending"] == "True"
    return "grad" in path or (waits and path not in (f"{episode}/pending", f"{episode}/number"))


def everything(session: Session) -> dict[str, dict[str, str]]:
    parts = session.parts()
    found = {name: object_leaves(part, parts.values()) for name, part in parts.items()}
    for name, part in parts.items():
        if isinstance(part, ReplayBuffer):
            kept = {path: value for path, value in found[name].items() if not path.startswith(UNSAVED)}
            found[name] = kept | object_leaves(part.rows.gather(part.rows.ids))
    return found


def run_until(session: Session, cycles: int) -> None:
    evaluator = build_evaluator(session.config)
    Orchestrator(session, evaluator, [], lambda: session.counters.cycles >= cycles).run()
    evaluator.close()


@pytest.mark.parametrize("case", CASES)
def test_everything_that_changes_is_restored_from_the_state(case: str, tmp_path: Path) -> None:
    config = make_config(CASES[case][0], CASES[case][1:], seed=5)
    session = build(config)
    run_until(session, 1)
    before = everything(session)
    run_until(session, 3)
    after = everything(session)
    store = SealedStore(tmp_path / "sealed")
    write_tree(tmp_path / "state", session.state(), store)
    session.close()

    restored = build(config)
    restored.load_state(read_tree(tmp_path / "state", store))
    found = everything(restored)
    restored.close()
    for name in after:
        changed = [path for path in after[name] if after[name][path] != before[name].get(path)]
        lost = [
            path for path in changed
            if not is_void(path, after[name]) and found[name].get(path) != after[name][path]
        ]  # fmt: skip
        assert not lost, f"{name} does not restore {lost}"
    assert after["algorithm"] != before["algorithm"]
    assert after["collector"] != before["collector"]


def test_the_check_detects_a_missing_attribute() -> None:
    counters = Counters(env_steps=3)
    counters.forgotten = 1  # type: ignore[attr-defined]
    before = object_leaves(counters)
    counters.forgotten = 2  # type: ignore[attr-defined]
    restored = Counters()
    restored.load_state({"env_steps": 3})
    changed = [path for path, value in object_leaves(counters).items() if value != before[path]]
    assert changed == ["/forgotten"]
    assert object_leaves(restored).get("/forgotten") != object_leaves(counters)["/forgotten"]
