"""How close an update comes to the time that its matmuls alone would take on this machine.

``python -m bench limit [SPEC key=value ...]``, without a spec for the tasks of ``bench speed``, prints the FLOPs of the
matmuls and convolutions of one update (counted by torch on the same update), the rate of a big matmul by the fastest
library, measured in the same process, and the share of that limit. CPU time, one thread, nothing written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from torch.utils.flop_counter import FlopCounterMode

from bench.speed import TASKS
from reverie.backend import Backend, configure_process
from reverie.build import build, new_algorithm
from reverie.config.pipeline import prepare_new
from reverie.config.schema import RunConfig
from reverie.core.rng import make_generator
from reverie.core.types import Batch
from reverie.kernels.products import array_matmul, has_onednn
from reverie.training.session import Session

SECONDS, TURNS = 0.4, 5
ENOUGH_ROWS = 2_000
SIZE = 768
"""Rows, columns and terms of the matmul that gives the rate."""


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU time of a call: the fastest of several turns, so that caches are warm."""
    call()
    turns = []
    for _ in range(TURNS):
        started, calls = time.process_time(), 0
        while time.process_time() - started < SECONDS / TURNS:
            call()
            calls += 1
        turns.append((time.process_time() - started) / calls)
    return min(turns)


def gflops_per_second() -> float:
    """The rate of a big float32 matmul, by the fastest library."""
    x, y = (make_generator(name).standard_normal((SIZE, SIZE), np.float32) for name in ("x", "y"))
    libraries = ("numpy", "torch", "onednn") if has_onednn() else ("numpy", "torch")
    return 2e-9 * SIZE**3 / min(cpu_seconds(lambda one=one: array_matmul(one)(x, y)) for one in libraries)  # type: ignore[misc]


def collect(session: Session, hook: str) -> Batch:
    """A batch of the run's own size, played with the initial policy."""
    phase = next(phase for phase in session.config.phases if any(each.name == hook for each in phase.hooks))
    rows = next(each.rows for each in phase.hooks if each.name == "collect" and each.rows)
    buffer, read = session.buffers[phase.buffer], session.algorithm.reads[hook]
    session.collector.restart()
    while len(buffer) < (ENOUGH_ROWS if read.rows else rows) or not buffer.can_sample(read):
        session.collector.collect_rows(buffer, rows)
    return session.normaliser.normalise_batch(buffer.sample(read, session.collector.now, make_generator("sample")))


def count_flops(config: RunConfig, session: Session, hook: str, batch: Batch) -> int:
    """FLOPs of the torch form of the update, which does the same work as the numpy form."""
    plain = config.backend.model_copy(update={"engine": "torch", "matmul": "torch"})
    built = new_algorithm(config.model_copy(update={"backend": plain}), session.policy.specs)
    assert built.backend == Backend.from_settings(plain)
    with FlopCounterMode(display=False) as counter:
        getattr(built.algorithm, hook)(batch, session.counters.clock(), make_generator("update"))
    return counter.get_total_flops()


def measure(spec: str, words: Sequence[str] = (), hook: str = "update") -> dict[str, Any]:
    """FLOPs and CPU seconds of an update, and the time that its FLOPs would take at the rate of a big matmul."""
    prepared = prepare_new(spec, words)
    configure_process(prepared.config.backend)
    with closing(build(prepared.config, specs=prepared.specs)) as session:
        batch = collect(session, hook)
        clock, rng = session.counters.clock(), make_generator("update")
        update = getattr(session.algorithm, hook)
        seconds = cpu_seconds(lambda: update(batch, clock, rng))
        flops = count_flops(prepared.config, session, hook, batch)
    rate = gflops_per_second()
    limit = 1e-9 * flops / rate
    return {
        "update_milliseconds": round(1e3 * seconds, 3), "update_megaflops": round(1e-6 * flops, 1),
        "matmul_gflops_per_second": round(rate), "matmul_milliseconds": round(1e3 * limit, 3),
        "share_of_limit": round(limit / seconds, 2),
    }  # fmt: skip


def main() -> None:
    asked = [sys.argv[1:]] if sys.argv[1:] else [words for _, words, _ in TASKS.values()]
    for spec, *words in asked:
        print(json.dumps({"spec": spec, **measure(spec, words)}), flush=True)
