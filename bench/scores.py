"""Trains presets over several seeds, evaluates each best policy, and writes the table in docs/scores.md.

``python -m bench scores [spec ...]`` trains only the specs named and keeps the other rows of the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "scores.md"
RUNS = Path("runs/scores")
EPISODES = 100
JOBS = 2
TASKS = {
    # spec: seeds, what must be reached
    "CartPole-v1:ppo": (5, "475"),
    "Pendulum-v1:ppo": (3, "-250"),
    "Acrobot-v1:ppo": (3, "-95"),
    "Reverie/Motion-v0:ppo": (3, "27.9 (90 % of 31)"),
    "CartPole-v1:dqn": (3, "475"),
    "Pendulum-v1:sac": (3, "-170"),
    "CartPole-v1:reinforce": (3, "450"),
    "FrozenLake8x8-v1:qlearning": (3, "0.80 (the best possible is 0.886)"),
    "Taxi-v4:qlearning": (3, "7.5"),
}
HEADER = """# Scores

Mean return of the best policy of each seed over 100 evaluation episodes on starting states that training never
evaluated on. One thread per run, two runs at a time on a shared machine. Made by `make bench ARGS=scores`.

| spec | seeds | env steps | return per seed | mean | to reach | wall minutes per run | commit |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Result:
    score: float
    env_steps: int
    seconds: float


def reverie(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "reverie", *arguments, "--runs-dir", str(RUNS), "--json"]
    done: dict[str, object] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return done


def train(spec: str, seed: int) -> Result:
    started = time.perf_counter()
    run = reverie("train", spec, "--seed", str(seed))
    seconds = time.perf_counter() - started
    score = reverie("eval", str(run["run"]), "--episodes", str(EPISODES), "--seed", str(1000 + seed))
    return Result(float(str(score["return_mean"])), int(str(run["env_steps"])), seconds)


def row(spec: str) -> str:
    seeds, goal = TASKS[spec]
    with ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(lambda seed: train(spec, seed), range(1, seeds + 1)))
    scores = [result.score for result in results]
    each = ", ".join(f"{score:.2f}" for score in scores)
    minutes = np.mean([result.seconds for result in results]) / 60
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    steps = f"{max(result.env_steps for result in results):,}"
    return f"| {spec} | 1-{seeds} | {steps} | {each} | {np.mean(scores):.2f} | {goal} | {minutes:.1f} | {commit} |"


def main() -> None:
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    table = {line.split("|")[1].strip(): line for line in lines if line.count("|") > 7}
    for spec in [word for word in sys.argv[1:] if ":" in word] or TASKS:
        table[spec] = row(spec)
        print(table[spec], flush=True)
        PAGE.write_text(HEADER + "\n".join(table[known] for known in TASKS if known in table) + "\n")
