"""Choose the engine and the matmul libraries of a CPU run by measuring the layers that its updates compute.

The choice changes the last bits of results, so it is made once, when a run is created, and written to its config. It is
also cached, so that equal runs on one machine are equal. A run without big layers is not measured.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from reverie.config.phases import flatten_phases
from reverie.config.schema import RunConfig
from reverie.core.contracts import Algorithm
from reverie.core.reads import Read
from reverie.core.traits import algorithm_traits
from reverie.machine import processor
from reverie.store.cache import read_entry, write_entry

if TYPE_CHECKING:
    from collections import Counter

    from reverie.kernels.measure import LayerShape, Speeds

USUAL = {"engine": "numpy", "matmul": "torch", "numpy_matmul": "numpy"}
"""What ``auto`` stands for if nothing else is faster."""
DECISIVE = 0.85
"""Anything else must take less than this part of the usual time. Small differences could be noise."""
CACHE = "kernels"


def choose_kernels(config: RunConfig, algorithm: Algorithm) -> tuple[RunConfig, list[str]]:
    """Resolve what is still ``auto``, with notes for the user. ``algorithm`` may be one without weights."""
    settings = config.backend.model_dump()
    if all(settings[name] != "auto" for name in USUAL):
        return config, []
    speeds, has_numpy_engine = _speeds(config, algorithm), algorithm_traits(config.algorithm.kind).numpy_engine
    choice = choose(speeds, has_numpy_engine) if speeds else USUAL
    chosen = {name: choice[name] for name in USUAL if settings[name] == "auto"}
    notes = [describe(speeds, {**settings, **chosen}, has_numpy_engine)] if speeds else []
    backend = config.backend.model_copy(update=chosen)
    return config.model_copy(update={"backend": backend}), notes


def choose(speeds: Mapping[str, Mapping[str, float]], has_numpy_engine: bool) -> dict[str, str]:
    """The usual choice, unless another one is decisively faster. Without a numpy engine, numpy still acts."""
    best = {name: _fastest(speeds[name], USUAL[name]) for name in ("matmul", "numpy_matmul")}
    return {"engine": _fastest(speeds["engines"], "numpy") if has_numpy_engine else "numpy", **best}


def _fastest(seconds: Mapping[str, float], usual: str) -> str:
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] < DECISIVE * seconds[usual] else usual


def describe(speeds: Mapping[str, Mapping[str, float]], chosen: Mapping[str, Any], has_numpy_engine: bool) -> str:
    """What was measured and chosen for updates, in one line."""
    engine = chosen["engine"] if has_numpy_engine else "torch"
    group = "numpy_matmul" if engine == "numpy" else "matmul"
    times = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in speeds[group].items())
    return f"Updates by the {engine} engine, big matmuls by {chosen[group]} (measured per update: {times})"


def _speeds(config: RunConfig, algorithm: Algorithm) -> Speeds | None:
    """Measured or cached speeds of the big layers, or None if there are none."""
    from reverie.backend import configure_process, modules_of  # imports torch
    from reverie.kernels import measure as speed

    rows = max((rows_per_step(config, hook, read) for hook, read in algorithm.reads.items()), default=0)
    shapes = speed.layer_shapes(modules_of(algorithm).values(), rows)
    if not shapes or not config.backend.device.startswith("cpu"):
        return None
    key = _key(config, shapes)
    cached = read_entry(CACHE, key)
    if cached is None:
        configure_process(config.backend)
        write_entry(CACHE, key, speed.measure(shapes), replaces=False)
        cached = read_entry(CACHE, key)  # another process may have been first
    return cached if cached is not None else speed.measure(shapes)


def rows_per_step(config: RunConfig, hook: str, read: Read) -> int:
    """Rows of one gradient step. An int as ``batch_size`` is rows, a float a fraction of the rollout."""
    if read.rows is not None:
        return read.rows
    called = (phase for phase in flatten_phases(config.phases) if any(each.name == hook for each in phase.hooks))
    collected = (each.rows for phase in called for each in phase.hooks if each.name == "collect" and each.rows)
    rollout = max(collected, default=config.env.num_envs)
    size = config.algorithm.model_dump().get("batch_size", 1.0)
    return size if isinstance(size, int) else int(size * rollout)


def _key(config: RunConfig, shapes: Counter[LayerShape]) -> str:
    """A hash of everything that the speeds depend on."""
    described = {
        "processor": processor.facts().get("model name", ""),
        "flags": processor.facts().get("flags", ""),
        "blas": processor.blas_kernels(),
        "versions": [importlib.metadata.version(name) for name in ("numpy", "torch")],
        "threads": config.backend.threads,
        "shapes": sorted((*asdict(shape).values(), count) for shape, count in shapes.items()),
    }
    return blake2b(json.dumps(described).encode(), digest_size=16).hexdigest()
