"""Recurrent agents recall a cue that is no longer visible. Without a hidden state, one answer in four is right."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import reverie

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing costs half of the time


@pytest.mark.parametrize(
    ("variant", "often"),
    [
        ("ppo_gru", "phases.learn.evaluate.every_steps=4000"),
        ("ppo_lstm", "phases.learn.evaluate.every_steps=2000"),
        ("ppo_transformer", "phases.learn.evaluate.every_steps=4000"),
        ("dqn_gru", "phases.learn.evaluate.every_steps=1500"),
    ],
)
def test_recurrent_agents_recall_the_cue(variant: str, often: str, tmp_path: Path) -> None:
    words = ("early_stop=solved", often, "env.vector=sync")
    run = reverie.train(f"Reverie/Recall-v0:{variant}", *words, "evaluate.final_episodes=0", seed=1, runs_dir=tmp_path)
    scores = [line["evaluate/return_mean"] for line in run.metrics() if "evaluate/return_mean" in line]
    assert scores[0] < 0.9  # not solved from the start
    assert scores[-1] >= 0.95
    assert reverie.evaluate(str(run.path), episodes=50, seed=1234)["return_mean"] >= 0.9

    env, agent = gym.make("Reverie/Recall-v0"), run.agent()
    total = 0.0
    for seed in range(20):
        (observation, _), ended = env.reset(seed=seed), False
        agent.reset()
        while not ended:
            observation, reward, ended, _, _ = env.step(agent.act(observation))
            total += float(reward)
    assert total >= 18
