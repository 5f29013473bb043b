"""Env steps per CPU second, end to end, against Stable-Baselines3 with the same settings: one thread each, in turn.

Needs the peers' environment: ``make peers``. With ``.venv-peers/bin/pip install sbx-rl`` its JAX version is measured,
too. Prints ratios of CPU seconds, the most stable number on a shared machine: medians of several turns. The breakdown
of our time is from the run's machine.jsonl, in wall seconds; env time is included in collecting.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
TURNS = int(os.environ.get("TURNS", 3))
QUIET = [
    "evaluate.final_episodes=0", "log.every_steps=10000", "checkpoint.every_steps=1000000", "video.enabled=false",
    "log.report=false",
]  # fmt: skip
SHORT = ["phases.learn.collect.rows=8"]
TASKS = {
    # name: env steps, our spec and settings, the peer's program
    "ppo CartPole-v1, 8 envs, SB3's default values": (
        65_536,
        ["CartPole-v1:ppo", "algorithm.learning_rate=3e-4", "algorithm.clip=0.2", "algorithm.gamma=0.99",
         "algorithm.gae_lambda=0.95", "algorithm.epochs=10", "algorithm.batch_size=64",
         "phases.learn.collect.rows=16384", "phases.learn.evaluate.every_steps=1000000"],
        """
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), device="cpu").learn(STEPS)
""",
    ),
    "dqn CartPole-v1, the zoo's values": (
        20_000,
        ["CartPole-v1:dqn", "phases.learn.evaluate.every_steps=1000000"],
        """
from stable_baselines3 import DQN
DQN("MlpPolicy", "CartPole-v1", learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000,
    gamma=0.99, target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
    exploration_final_eps=0.04, policy_kwargs=dict(net_arch=[256, 256]), device="cpu").learn(STEPS)
""",
    ),
    "sac HalfCheetah-v5, one update per step": (
        3_000,
        ["HalfCheetah-v5:sac", "env.num_envs=1", "phases.prefill.duration_steps=1000",
         "phases.learn.evaluate.every_steps=1000000"],
        """
from stable_baselines3 import SAC
SAC("MlpPolicy", "HalfCheetah-v5", learning_starts=1000, device="cpu").learn(STEPS)
""",
    ),
}  # fmt: skip


def one_thread() -> dict[str, str]:
    """This process's environment with one thread for every library.

    Kernels that it forces upon numpy's OpenBLAS are left out: each library takes those that it finds best by itself.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    kept["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return kept | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def cpu_seconds(command: list[str]) -> float:
    """CPU time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=one_thread(), stdout=subprocess.DEVNULL, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(words: list[str], steps: int) -> tuple[float, dict[str, float]]:
    """CPU seconds of a run, and the seconds of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "reverie", "train", *words, *QUIET, "--steps", str(steps), "--quiet"]
        taken = cpu_seconds([*command, "--runs-dir", folder])
        (path,) = Path(folder).glob("*/machine.jsonl")
        last = json.loads((path.read_text().splitlines() or ["{}"])[-1])
    names = [f"speed/{part}_seconds" for part in ("collect", "update", "save")] + ["usage/env_seconds"]
    return taken, {name: round(last[name], 2) for name in names if name in last}


def peer(program: str, steps: int) -> float:
    """CPU seconds of a peer's program without those of its imports."""
    start = cpu_seconds([str(PEERS), "-c", program.split("\n")[1]])
    whole = f"import torch; torch.set_num_threads(1); STEPS = {steps}\n{program}"
    return cpu_seconds([str(PEERS), "-c", whole]) - start


def turn(words: list[str], steps: int, programs: dict[str, str]) -> tuple[float, dict[str, float], dict[str, float]]:
    """CPU seconds of ours and of each peer, and ours by part; what starting costs is measured apart and taken off."""
    start_ours, _ = ours([*words, *SHORT], 1)
    taken, parts = ours(words, steps)
    return taken - start_ours, {name: peer(program, steps) for name, program in programs.items()}, parts


def limit(words: list[str]) -> dict[str, float]:
    """What an update takes, and what its matmuls would take at the rate of a big one (see :mod:`bench.limit`)."""
    command = [sys.executable, "-m", "bench", "limit", *words]
    done = subprocess.run(command, check=True, env=one_thread(), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def peers_programs(program: str) -> dict[str, str]:
    """That of Stable-Baselines3, and of its form in JAX if that is installed. What JAX compiles counts: it has to."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('sbx') is None)"
    has_sbx = subprocess.run([str(PEERS), "-c", look]).returncode == 0
    in_jax = {"sbx": program.replace("from stable_baselines3 import", "from sbx import")} if has_sbx else {}
    return {"sb3": program, **in_jax}


def main() -> None:
    """``python -m bench speed [word ...]``: the tasks whose names contain one of the words, or all."""
    if not PEERS.exists():
        sys.exit("The peers are not installed. Type: make peers")
    wanted = sys.argv[1:] or [""]
    for name, (steps, words, program) in TASKS.items():
        if not any(word in name for word in wanted):
            continue
        programs = peers_programs(program)
        turns = [turn(words, steps, programs) for _ in range(TURNS)]
        mine = statistics.median(taken for taken, _, _ in turns)
        result = {"task": name, "env_steps": steps, "ours_steps_per_cpu_second": round(steps / mine)}
        for other in programs:
            theirs = statistics.median(peers[other] for _, peers, _ in turns)
            result |= {
                f"{other}_steps_per_cpu_second": round(steps / theirs),
                f"{other}_ratio": round(theirs / mine, 2),
            }
        parts = {"our_cpu_seconds": round(mine, 2), "our_seconds_by_part": turns[-1][2]}
        print(json.dumps({**result, **parts, **limit(words)}), flush=True)
