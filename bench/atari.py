"""One DQN update at Atari's size (Nature CNN, 32 stacks of 4 x 84 x 84), ours and Stable-Baselines3's in turn.

CPU milliseconds on one thread. Single turns differ by a fifth on a shared machine, so the median over turns counts.
Needs the peers' environment: ``make peers``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from bench.speed import PEERS, ROOT, one_thread

TURNS, UPDATES = 9, 50

TIMER = f"""
import os, time
import numpy as np, torch
torch.set_num_threads(1)

def smallest(call):
    call()
    turns = []
    for _ in range(5):
        start = time.process_time()
        for _ in range({UPDATES} // 5):
            call()
        turns.append((time.process_time() - start) / ({UPDATES} // 5))
    print(1000 * min(turns))

rng = np.random.default_rng(0)
"""

OURS = """
from bench.fastest_matmul import fastest_matmul
from reverie import backend
from reverie.algos.dqn import DQN
from reverie.config.schema import BackendConfig
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Clock

matmul = fastest_matmul()
backend.configure_process(BackendConfig(threads=1))
specs = Specs({"obs": ObservationSpec((84, 84, 4), "uint8", "image")}, ActionSpec("discrete", (), "int64", (6,)))
config = {"network": {"kind": "nature"}, "double": False, "target_every": 10_000, "target_rate": 1.0}
chosen = backend.Backend(matmul=matmul)
agent = DQN(DQN.Config.model_validate(config), specs, make_generator(0, "weights"), chosen)
batch = {
    "obs": rng.integers(0, 256, (32, 2, 84, 84, 4), dtype=np.uint8), "action": rng.integers(0, 6, (32, 2)),
    "reward": rng.standard_normal((32, 2), dtype=np.float32),
    **{key: np.zeros((32, 2), bool) for key in ("is_first", "terminated", "truncated")},
}
smallest(lambda: agent.update(batch, Clock(updates=1), rng))
"""

PEER = """
import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.logger import configure

class Pictures(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(6)
    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

agent = DQN("CnnPolicy", Pictures(), buffer_size=1000, batch_size=32, learning_starts=0, device="cpu")
agent.set_logger(configure(None, []))
for _ in range(200):
    now, then = (rng.integers(0, 256, (1, 4, 84, 84), dtype=np.uint8) for _ in range(2))
    agent.replay_buffer.add(now, then, rng.integers(0, 6, (1, 1)), np.ones(1), np.zeros(1), [{}])
smallest(lambda: agent.train(1, 32))
"""


def milliseconds(python: str, program: str) -> float:
    command = [python, "-c", TIMER + program]
    result = subprocess.run(command, check=True, env=one_thread(), stdout=subprocess.PIPE, cwd=ROOT)
    return float(result.stdout)


def main() -> None:
    if not PEERS.exists():
        sys.exit("The peers are not installed. Type: make peers")
    pairs = [(milliseconds(sys.executable, OURS), milliseconds(str(PEERS), PEER)) for _ in range(TURNS)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(round(peer / own, 2) for own, peer in pairs)
    result = {"task": "dqn update, Nature CNN, batch 32", "ours_ms": round(ours, 1), "sb3_ms": round(theirs, 1)}
    print(json.dumps({**result, "ratio": statistics.median(ratios), "ratios": ratios}), flush=True)
