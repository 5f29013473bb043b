"""Learn from stored episodes alone: record them, look at them, train on them.

docs/offline.md explains datasets and held-out episodes.
"""

from pathlib import Path

import reverie
from reverie import api

STEPS = 20_000
UPDATES = 3_000
EPISODES = 100

teacher = reverie.train("CartPole-v1:ppo", seed=1, steps=STEPS)
data = Path("data/cartpole-ppo")
if not data.exists():
    api.record_data(teacher, data, episodes=EPISODES, sample=True)  # the policy explores, so the episodes differ
print("mean return of the data:", api.describe_data(str(data))["return_mean"])

pupil = reverie.train(
    "CartPole-v1:dqn",
    "offline",  # a preset: one phase that only learns
    seed=1,
    overrides={
        "buffers.main.source": str(data),
        "phases.offline.duration_updates": UPDATES,
        "phases.offline.evaluate.every_updates": UPDATES // 3,
    },
)
print("teacher:", teacher.status["best_score"], "pupil:", pupil.status["best_score"])
