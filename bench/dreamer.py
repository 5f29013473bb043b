"""One full update of Dreamer, one thread, float32: ``python -m bench.dreamer --obs vector --size size1m --json``.

CPU seconds of an update on batches of 16 x 64 rows with 15 imagined steps, the GFLOP of an update, the rate of plain
matmuls in the same run, and how much of the update these GFLOP would take at that rate (``share_of_limit``). For each
part of the update: its time, its GFLOP, and the time of its matmuls run alone. ``act_*`` is one call of the policy.
``first_update_s`` are wall seconds from process start to the end of the first update, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.fastest_matmul import fastest_matmul
from bench.parts import Part, measure_parts
from reverie import backend
from reverie.algos import dreamer
from reverie.config.compose import compose
from reverie.config.schema import BackendConfig
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Clock, Mode, Row
from reverie.models.world_model import RSSMWorldModel
from reverie.nets import laprop, optim
from reverie.nets.matmul import Matmul

SPECS = {
    "vector": Specs(
        {"obs": ObservationSpec((24,), "float32", "vector")},
        ActionSpec("continuous", (6,), "float32", low=(-1.0,) * 6, high=(1.0,) * 6),
    ),
    "image": Specs({"obs": ObservationSpec((64, 64, 3), "uint8", "image")}, ActionSpec("discrete", (), "int64", (17,))),
}
PARTS = {
    "observe": (RSSMWorldModel, "observe"), "model_losses": (RSSMWorldModel, "losses"),
    "imagine": (dreamer.Dreamer, "imagine_for_policy"), "estimate": (dreamer.Dreamer, "estimate"),
    "replay_value": (dreamer.Dreamer, "replay_value_loss"), "other_losses": (dreamer.Dreamer, "loss"),
    "backward": (optim, "_differentiate"), "step": (laprop.LaProp, "update_parameters"),
}  # fmt: skip


def make_agent(obs: str, size: str, settings: list[str], chosen: backend.Backend) -> dreamer.Dreamer:
    tree = compose("Reverie/Counting-v0:dreamer", [size, *settings]).tree["algorithm"]
    config = dreamer.Dreamer.Config.model_validate(tree)
    return dreamer.Dreamer(config, SPECS[obs], make_generator(0, "weights"), chosen)


def make_batch(agent: dreamer.Dreamer) -> Row:
    """Random rows, as a buffer serves them."""
    rng, specs, config = make_generator(0, "batch"), agent.specs, agent.config
    shape = (config.batch_size, config.batch_length + 1)
    spec, count = specs.observations["obs"], shape[0] * shape[1]
    is_image = spec.kind == "image"
    seen = rng.integers(0, 256, (*shape, *spec.shape)) if is_image else rng.standard_normal((*shape, *spec.shape))
    never, rssm = np.zeros(shape, bool), config.model.rssm
    return {
        "obs": seen.astype(spec.dtype), "action": specs.action.sample(rng, count).reshape(*shape, *specs.action.shape),
        "reward": rng.standard_normal(shape, dtype=np.float32), "is_first": rng.random(shape) < 0.005,
        "terminated": never, "truncated": never, "id": np.arange(count).reshape(shape),
        "note/deter": np.zeros((*shape, rssm.deter), np.float32),
        "note/stoch": np.zeros((*shape, rssm.stoch), np.uint8),
    }  # fmt: skip


def cpu_seconds(call: Callable[[], Any], times: int) -> float:
    """The median of several calls."""
    taken = []
    for _ in range(times):
        before = time.process_time()
        call()
        taken.append(time.process_time() - before)
    return statistics.median(taken)


def seconds_since_start() -> float:
    """Wall seconds since this process began, by the clock of the system: before Python could look at one."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def gemm_gflops(matmul: Matmul) -> float:
    """Of 1024 x 1024 matmuls."""
    matrix = torch.randn(1024, 1024)
    return 2 * 1024**3 / cpu_seconds(lambda: matmul.multiply(matrix, matrix), 15) / 1e9


def describe(parts: Mapping[str, Part]) -> dict[str, dict[str, float]]:
    """Per part: its CPU milliseconds, its GFLOP, and the milliseconds of its matmuls and convolutions run alone."""
    return {
        name: {"ms": round(1000 * part.seconds, 1), "gflop": round(part.gflop, 2),
               "matmul_ms": round(1000 * part.matmul_seconds(), 1)}
        for name, part in parts.items()
    }  # fmt: skip


def act_milliseconds(agent: dreamer.Dreamer, num_envs: int) -> float:
    batch = make_batch(agent)
    row = {key: np.repeat(value[:1, 0], num_envs, 0) for key, value in batch.items()}
    now = {**row, "previous_action": row.pop("action"), "is_first": np.zeros(num_envs, bool)}
    carry, rng = agent.initial_carry(num_envs), make_generator(0)
    return 1000 * cpu_seconds(lambda: agent.act(now, carry, Clock(), rng, Mode.COLLECT), 100)


def measure(obs: str, size: str, updates: int, settings: list[str]) -> dict[str, Any]:
    matmul = fastest_matmul()
    backend.configure_process(BackendConfig(threads=1))
    agent = make_agent(obs, size, settings, backend.Backend(matmul=matmul))
    rng = make_generator(0, "noise")
    batch = make_batch(agent)

    def update() -> None:
        agent.update(batch, Clock(), rng)

    update()
    ready = seconds_since_start()
    seconds = cpu_seconds(update, updates)
    parts = measure_parts(update, PARTS, updates)
    gflop, rate = sum(part.gflop for part in parts.values()), gemm_gflops(Matmul(matmul))
    weights = sum(len(optimizer.flat) for optimizer in (agent.model_optimizer, agent.behaviour_optimizer))
    return {
        "obs": obs, "size": size, "settings": settings, "matmul": matmul, "weights": weights,
        "update_cpu_s": round(seconds, 4), "gflop": round(gflop, 1),
        "gemm_gflops": round(rate, 1), "share_of_limit": round(gflop / rate / seconds, 2), "parts": describe(parts),
        "act_1_ms": round(act_milliseconds(agent, 1), 2), "act_16_ms": round(act_milliseconds(agent, 16), 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "compile_s": 0.0, "first_update_s": round(ready, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--obs", choices=list(SPECS), default="vector")
    parser.add_argument("--size", default="size1m")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("settings", nargs="*", help="such as **.strided=true")
    given = parser.parse_args()
    found = measure(given.obs, given.size, given.updates, given.settings)
    parts = {} if given.json else found.pop("parts")
    print(json.dumps(found) if given.json else "\n".join(f"{key:>16}  {value}" for key, value in found.items()))
    for name, part in parts.items():
        print(f"{name:>16}  " + "  ".join(f"{key} {value:7.2f}" for key, value in part.items()))


if __name__ == "__main__":
    main()
