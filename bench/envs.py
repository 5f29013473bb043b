"""Raw env steps per CPU second of each vector backend, next to the same envs through Reverie.

Ways of stepping the same envs with random actions, each in a process of its own, in turn:

raw         the backend alone: Gymnasium's sync and async vectors, an env's own vector class, EnvPool
bare        for sync, also the envs without any wrapper in a plain loop
vector      our vector layer and wrappers, with actions drawn before
collector   a run's collector with a random controller: policy, normaliser, replay buffer and episode log included

Steps count every env of every vector step, resets included. Worker processes count too. Prints JSON lines with medians
of several turns: ``vector_ratio`` is ours divided by raw, so 0.87 is a cost of 15 %.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from bench.speed import ROOT, one_thread

TURNS = int(os.environ.get("TURNS", 5))
CPU_SECONDS = float(os.environ.get("CPU_SECONDS", 2))
"""CPU time that a side is measured for at least, after a quarter of it for warming up."""
LEAST_STEPS = 300
"""Vector steps that a side is measured for at least: resets of slow envs are rare and expensive."""
SIDES = ("raw", "bare", "vector", "collector")
ACTIONS = 64
"""Different actions that are drawn before, and used again and again."""
SETTINGS = ["buffers.main.capacity=20000", "buffers.main.storage=memory", "log.every_steps=10000"]
ATARI_WRAPPERS = "env.wrappers=[{kind: grayscale}, {kind: resize, height: 84, width: 84}, {kind: frame_stack}]"


@dataclass(frozen=True)
class Task:
    """One env with one backend."""

    spec: str
    """Env and algorithm, as for ``reverie train``."""
    backend: str
    raw: Callable[[int], Any]
    """The backend without Reverie."""
    num_envs: int = 8
    settings: tuple[str, ...] = ()
    module: str = ""
    """What has to be installed."""

    @property
    def sides(self) -> tuple[str, ...]:
        return SIDES if self.backend == "sync" else tuple(side for side in SIDES if side != "bare")

    @property
    def name(self) -> str:
        return f"{self.spec.partition(':')[0]}, {self.num_envs} envs, {self.backend}"

    @property
    def words(self) -> list[str]:
        rows = [f"phases.{phase}.collect.rows={8 * self.num_envs}" for phase in ("prefill", "learn")]
        return [f"env.num_envs={self.num_envs}", f"env.vector={self.backend}", *SETTINGS, *rows, *self.settings]


def gymnasium_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """An env as Gymnasium makes it, without its checks at every step. It crosses to worker processes by name."""
    from reverie.envs.make import find_spec

    return gym.make(find_spec(env_id).id, disable_env_checker=True, **kwargs)


def atari_env() -> gym.Env[Any, Any]:
    """Pong with Gymnasium's own wrappers, which do what ours do."""
    env = gym.wrappers.GrayscaleObservation(gymnasium_env("ALE/Pong-v5", max_episode_steps=27000))
    return gym.wrappers.FrameStackObservation(gym.wrappers.ResizeObservation(env, (84, 84)), 4)


def in_process(make: Callable[[], Any], num_envs: int) -> Any:
    return gym.vector.SyncVectorEnv([make] * num_envs)


def in_workers(make: Callable[[], Any], num_envs: int) -> Any:
    """Gymnasium's workers: one process per env."""
    return gym.vector.AsyncVectorEnv([make] * num_envs)


def own_class(env_id: str, num_envs: int) -> Any:
    from reverie.envs.make import find_spec

    return gym.make_vec(find_spec(env_id).id, num_envs, vectorization_mode="vector_entry_point")


def envpool(task: str, num_envs: int) -> Any:
    import envpool as package

    threads = min(num_envs, len(os.sched_getaffinity(0)))
    return package.make_gymnasium(task, num_envs=num_envs, num_threads=threads)


MAKERS = {
    "CartPole-v1:dqn": (functools.partial(gymnasium_env, "CartPole-v1"), (), ""),
    "HalfCheetah-v5:sac": (functools.partial(gymnasium_env, "HalfCheetah-v5"), (), "mujoco"),
    "ALE/Pong-v5:dqn": (atari_env, (ATARI_WRAPPERS, "env.max_episode_steps=27000"), "ale_py"),
    "Crafter/Reward:dqn": (functools.partial(gymnasium_env, "Crafter/Reward"), (), "crafter"),
}
"""How Gymnasium makes each env, our settings for the same one, and the module that it needs."""


def tasks() -> list[Task]:
    found = [
        Task(spec, backend, functools.partial(vector, make), settings=settings, module=module)
        for spec, (make, settings, module) in MAKERS.items()
        for backend, vector in (("sync", in_process), ("process", in_workers))
    ]
    own, pool = functools.partial(own_class, "CartPole-v1"), functools.partial(envpool, "CartPole-v1")
    found += [Task("CartPole-v1:dqn", "native", own, num_envs) for num_envs in (8, 256)]
    found += [Task("CartPole-v1:dqn", "envpool", pool, num_envs, module="envpool") for num_envs in (8, 256)]
    found += [
        Task("HalfCheetah-v5:sac", "envpool", functools.partial(envpool, "HalfCheetah-v5"), module="envpool"),
        Task("ALE/Pong-v5:dqn", "native", functools.partial(own_class, "ALE/Pong-v5"), module="ale_py"),
        Task("ALE/Pong-v5:dqn", "envpool", functools.partial(envpool, "Pong-v5"), module="envpool"),
    ]
    return sorted(found, key=lambda task: list(MAKERS).index(task.spec))


def measure(name: str, side: str) -> float:
    """Env steps per CPU second of one side of a task, in this process."""
    (task,) = [task for task in tasks() if task.name == name]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        start = {"raw": raw_side, "bare": bare_side, "vector": vector_side, "collector": collector_side}[side]
        step, pids, close = start(task, folder)
        try:
            return task.num_envs * vector_steps_per_cpu_second(step, pids)
        finally:
            close()


Side = tuple[Callable[[], object], list[int], Callable[[], object]]
"""A function that takes one vector step, the worker processes, and what closes the envs."""


def raw_side(task: Task, folder: str) -> Side:
    env = task.raw(task.num_envs)
    actions = itertools.cycle(_batches(env, task.num_envs))
    env.reset()
    return lambda: env.step(next(actions)), [worker.pid for worker in getattr(env, "processes", [])], env.close


def _batches(env: Any, num_envs: int) -> list[Any]:
    """Random actions of all envs. EnvPool's action space is that of one env."""
    space = env.action_space
    space.seed(0)
    if not hasattr(env, "all_env_ids"):
        return [space.sample() for _ in range(ACTIONS)]
    kind = env.spec.action_array_spec["action"].dtype
    return [np.array([space.sample() for _ in range(num_envs)], kind) for _ in range(ACTIONS)]


def bare_side(task: Task, folder: str) -> Side:
    envs = [gymnasium_env(task.spec.partition(":")[0]) for _ in range(task.num_envs)]
    envs[0].action_space.seed(0)
    actions = itertools.cycle([[envs[0].action_space.sample() for _ in envs] for _ in range(ACTIONS)])
    for env in envs:
        env.reset()

    def step() -> None:
        for env, action in zip(envs, next(actions), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step, [], lambda: [env.close() for env in envs]


def vector_side(task: Task, folder: str) -> Side:
    from reverie.api import make_config
    from reverie.core.rng import make_generator
    from reverie.envs.make import make_vector

    vector: Any = make_vector(make_config(task.spec, task.words, seed=0).env, 0)
    rng = make_generator("bench envs")
    actions = itertools.cycle([vector.specs.action.sample(rng, task.num_envs) for _ in range(ACTIONS)])
    vector.reset()
    return lambda: vector.step(next(actions)), getattr(vector, "worker_pids", []), vector.close


def collector_side(task: Task, folder: str) -> Side:
    from reverie import backend
    from reverie.api import make_config
    from reverie.build import build
    from reverie.log.sinks import JsonlSink

    config = make_config(task.spec, task.words, seed=0)
    backend.configure_process(config.backend)
    session = build(config, sinks=[JsonlSink(Path(folder))])
    session.collector.use_controller(session.factories.controller("random"))
    session.collector.restart()
    cycle = itertools.cycle(range(8))

    def step() -> None:
        session.collector.collect_rows(session.buffers["main"], task.num_envs)
        if next(cycle) == 7:  # the collect hook of a cycle has so many rows
            session.normaliser.advance()
            session.recorder.end_cycle()

    return step, getattr(session.vector, "worker_pids", []), session.close


def vector_steps_per_cpu_second(step: Callable[[], object], pids: list[int]) -> float:
    for seconds, steps in ((CPU_SECONDS / 4, 0), (CPU_SECONDS, LEAST_STEPS)):
        done, begin = 0, cpu_seconds(pids)
        while (taken := cpu_seconds(pids) - begin) < seconds or done < steps:
            for _ in range(10):
                step()
            done += 10
    return done / taken


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of this process with all its threads, and of its workers."""
    clocks = (((~pid) << 3) | 2 for pid in pids)  # as clock_getcpuclockid(3) of Linux computes them
    return time.process_time() + sum(map(time.clock_gettime, clocks))


def measure_apart(task: Task, side: str) -> float | None:
    """:func:`measure` in a fresh process. None if the backend does not have this env."""
    program = f"from bench.envs import measure; print('rate', measure({task.name!r}, {side!r}))"
    result = subprocess.run([sys.executable, "-c", program], env=one_thread(), capture_output=True, text=True, cwd=ROOT)
    rates = [line.removeprefix("rate ") for line in result.stdout.splitlines() if line.startswith("rate ")]
    if not rates:
        print(f"{task.name}, {side}: {(result.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
    return float(rates[0]) if rates else None


def main() -> None:
    """``python -m bench envs [word ...]``: the tasks whose names contain all of the words."""
    chosen = [task for task in tasks() if all(word in task.name for word in sys.argv[1:])]
    for task in chosen:
        if task.module and importlib.util.find_spec(task.module) is None:
            print(f"{task.name}: {task.module} is not installed", file=sys.stderr)
            continue
        turns = [{side: measure_apart(task, side) for side in task.sides} for _ in range(TURNS)]
        print(json.dumps(summary(task, turns)), flush=True)


def summary(task: Task, turns: list[dict[str, float | None]]) -> dict[str, Any]:
    """Medians over the turns. A ratio is the median of the ratios within turns."""
    rates = {side: [rate for turn in turns if (rate := turn[side]) is not None] for side in task.sides}
    line: dict[str, Any] = {"task": task.name, "turns": len(turns)}
    line |= {f"{side}_steps_per_cpu_second": round(statistics.median(found)) for side, found in rates.items() if found}
    for side, other in itertools.product(("vector", "collector"), ("raw", "bare")):
        ratios = [own / turn[other] for turn in turns if (own := turn[side]) and turn.get(other)]  # type: ignore[operator]
        name = f"{side}_ratio" if other == "raw" else f"{side}_ratio_to_bare"
        line |= {name: round(statistics.median(ratios), 2)} if ratios else {}
    return line
