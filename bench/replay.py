"""Replay: time of sampling and adding, against Stable-Baselines3's buffer where it has an equivalent.

Each number is the smallest mean over several turns; our process and the peer's take turns. Rows are read in random
order from memory far larger than the caches, as in a real run. SB3 returns tensors; ours are numpy arrays, from which
tensors are made without a copy. Needs ``make peers`` for the peer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PEERS = Path(os.environ.get("REVERIE_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
TURNS, CALLS, PROCESSES = 15, 100, 3

PEER = """
import json, time
import numpy as np, torch
import gymnasium as gym
from stable_baselines3.common.buffers import ReplayBuffer
torch.set_num_threads(1)

def smallest_mean(call):
    turns = []
    for _ in range(TURNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        turns.append((time.perf_counter() - start) / CALLS)
    return 1e6 * min(turns)

np.random.seed(0)
results = {}
for name, size, shape, dtype in (("vectors", 1_000_000, (4,), np.float32), ("stacks", 100_000, (4, 84, 84), np.uint8)):
    high = 255 if dtype == np.uint8 else np.inf
    space = gym.spaces.Box(0 if dtype == np.uint8 else -np.inf, high, shape, dtype)
    buffer = ReplayBuffer(size, space, gym.spaces.Discrete(2), device="cpu", optimize_memory_usage=True,
                          handle_timeout_termination=False)
    buffer.observations[:] = 1  # pages are there, as after filling it
    buffer.rewards[:] = 1
    buffer.actions[:] = 1
    buffer.pos, buffer.full = size // 2, True
    for count in (32, 64):
        results[f"{name} {count}"] = smallest_mean(lambda: buffer.sample(count))
    now, action, reward = np.ones((1, *shape), dtype), np.ones((1, 1)), np.ones(1)
    results[f"{name} add"] = smallest_mean(lambda: buffer.add(now, now, action, reward, np.zeros(1), [{}]))
    del buffer
print(json.dumps(results))
"""


def smallest_mean(call: Callable[[], object]) -> float:
    """Microseconds."""
    turns = []
    for _ in range(TURNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        turns.append((time.perf_counter() - start) / CALLS)
    return 1e6 * min(turns)


def make_buffer(capacity: int, image: bool, sampler: str) -> tuple:
    """A full buffer of one env, and how long each row took to add."""
    import numpy as np

    from reverie.core.specs import ActionSpec, ObservationSpec, Specs
    from reverie.data.replay import ReplayBuffer

    spec = ObservationSpec((84, 84, 4), "uint8", "image") if image else ObservationSpec((4,), "float32", "vector")
    settings = {"capacity": capacity, "stacked_frames": 4 if image else 1, "sampler": {"kind": sampler}}
    specs = Specs({"obs": spec}, ActionSpec("discrete", (), "int64", (2,)))
    buffer = ReplayBuffer(ReplayBuffer.Config.model_validate(settings), specs, 1)
    length = 200
    rows = [
        {"obs": np.full((1, *spec.shape), 1, spec.dtype), "reward": np.ones(1, np.float32),
         "is_first": np.array([place == 0]), "terminated": np.array([place == length - 1]),
         "truncated": np.zeros(1, bool), "action": np.zeros(1, np.int64)}
        for place in range(length)
    ]  # fmt: skip
    seconds = np.empty(capacity)
    for step in range(capacity):
        row = rows[step % length]
        start = time.perf_counter()
        buffer.add(row)
        seconds[step] = time.perf_counter() - start
    return buffer, 1e6 * seconds


def measure() -> dict[str, float]:
    """All of ours."""
    import numpy as np

    from reverie.core.reads import Transitions
    from reverie.core.types import WriteBack

    rng = np.random.default_rng(0)
    results = {}
    for name, capacity, image in (("vectors", 1_000_000, False), ("stacks", 100_000, True)):
        buffer, seconds = make_buffer(capacity, image, "uniform")
        for count in (32, 64):
            read = Transitions(count)
            results[f"{name} {count}"] = smallest_mean(lambda: buffer.sample(read, {}, rng))  # noqa: B023 - called here
        results[f"{name} add"], results[f"{name} add p99"] = np.percentile(seconds, [50, 99]).tolist()
    buffer, _ = make_buffer(1_000_000, False, "prioritised")
    read = Transitions(256)

    def prioritised() -> None:
        batch = buffer.sample(read, {}, rng)
        buffer.write_back(WriteBack(batch["id"][:, 0], {"priority": np.ones(256, np.float32)}))

    prioritised()
    results["prioritised 256, with priorities written"] = smallest_mean(prioritised)
    return results


def run(command: list[str]) -> dict[str, float]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **threads}, cwd=ROOT)
    results: dict[str, float] = json.loads(done.stdout)
    return results


def main() -> None:
    ours = [sys.executable, "-c", "import json; from bench.replay import measure; print(json.dumps(measure()))"]
    peer = [str(PEERS), "-c", f"TURNS, CALLS = {TURNS}, {CALLS}\n{PEER}"]
    pairs = [(run(ours), run(peer) if PEERS.exists() else {}) for _ in range(PROCESSES)]
    for name in pairs[0][0]:
        mine = statistics.median(pair[0][name] for pair in pairs)
        theirs = [pair[1][name] for pair in pairs if name in pair[1]]
        result = {"task": name, "ours_microseconds": round(mine, 1)}
        if theirs:
            result |= {
                "sb3_microseconds": round(statistics.median(theirs), 1),
                "ratio": round(statistics.median(theirs) / mine, 2),
            }
        print(json.dumps(result), flush=True)
