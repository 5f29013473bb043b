"""From a checked RunConfig to a Session: the only place that constructs components."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from reverie.backend import Backend
from reverie.config.agent_checks import build_algorithm, check_reads
from reverie.config.overrides import phase_config
from reverie.config.schema import EvaluateConfig, RunConfig
from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Algorithm, Buffer, Controller, Vector
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.rng import Streams, make_generator
from reverie.core.specs import Specs
from reverie.core.types import State
from reverie.data.normaliser import Normaliser
from reverie.envs.action_repeat import action_repeat
from reverie.envs.config import UNSEEDED, EnvConfig
from reverie.envs.goals import make_goals
from reverie.envs.make import make_specs, make_vector
from reverie.log.recorder import Recorder, Sink
from reverie.policy import Policy, make_algorithm
from reverie.store.checkpoint import CheckpointFolder
from reverie.training.collector import Collector
from reverie.training.evaluator import Evaluator, with_limit
from reverie.training.monitor import Monitor
from reverie.training.monitor_rules import Task
from reverie.training.scheduler import Scheduler
from reverie.training.session import Factories, Session


class NewAlgorithm(NamedTuple):
    """A run's algorithm with its initial weights, and what it was built with."""

    algorithm: Algorithm
    backend: Backend
    streams: Streams


def new_algorithm(config: RunConfig, specs: Specs) -> NewAlgorithm:
    """The algorithm that a run begins with. ConfigError if it does not fit the env or the buffers."""
    backend, streams = Backend.from_settings(config.backend), Streams(config.seed)
    algorithm = build_algorithm(config, specs, streams, backend)
    check_reads(config, algorithm.reads)
    return NewAlgorithm(algorithm, backend, streams)


def build(
    config: RunConfig,
    sinks: Sequence[Sink] = (),
    run: Path | None = None,
    specs: Specs | None = None,
    built: NewAlgorithm | None = None,
) -> Session:
    """Construct all parts of a run and start none. ``run`` is its folder, for buffers that keep rows on disk.

    Without ``specs``, an env is made to read them. ``built`` is the run's algorithm if it exists already.
    """
    specs = specs or make_specs(config.env)
    algorithm, backend, streams = built or new_algorithm(config, specs)
    counters = Counters(horizon_steps=config.horizon_steps)
    normaliser = Normaliser(config.normaliser, specs, config.env.num_envs)
    policy = Policy(algorithm, normaliser, specs, backend)
    recorder = Recorder(counters, config.log.every_steps, sinks, backend.device_usage, action_repeat(config.env))
    env = config.env
    task = Task(specs.action, config.horizon_steps, env.spec.solved_at, env.vector, env.num_envs)
    monitor = Monitor(config.monitor, task, recorder)
    recorder.sinks.append(monitor)
    vector = make_vector(config.env, config.seed)
    reads = {name: read.rows for name, read in algorithm.reads.items()}
    return Session(
        config=config,
        streams=streams,
        counters=counters,
        scheduler=Scheduler(config.phases, reads, config.evaluate.warmup_steps),
        algorithm=algorithm,
        normaliser=normaliser,
        buffers=_make_buffers(config, specs, run),
        vector=vector,
        collector=Collector(vector, policy, counters, recorder, streams),
        recorder=recorder,
        policy=policy,
        monitor=monitor,
        factories=_make_factories(config, specs, streams, backend),
        env_config=config.env,
    )


def copy_algorithm(session: Session) -> Algorithm:
    """A second algorithm in the same state, for experiments. The session and its streams do not change."""
    config, policy, rng = session.algorithm.config, session.policy, make_generator(session.config.seed, "copy")
    copy = make_algorithm(registry.load("algorithm", config.kind), config, policy.specs, rng, policy.backend)
    copy.load_state(session.algorithm.state())
    return copy


def build_evaluator(config: RunConfig, specs: Specs | None = None) -> Evaluator:
    """The evaluator of a run."""
    return make_evaluator(config.env, config.evaluate, config.seed, specs)


def make_evaluator(env: EnvConfig, settings: EvaluateConfig, seed: int, specs: Specs | None = None) -> Evaluator:
    """An evaluator on this env. Vectors that cannot start chosen episodes are replaced by sync ones."""
    env = env.for_evaluation()
    played = env.model_copy(update={"vector": "sync"}) if env.vector in UNSEEDED else env

    def make(num_envs: int) -> Vector:
        known = specs or make_specs(played)
        limited = played if known.max_episode_steps is not None else with_limit(played)
        return make_vector(limited, seed, "evaluate", num_envs)

    return Evaluator(settings, seed, make)


def build_policy(config: RunConfig, specs: Specs, algorithm: State, normaliser: State, backend: Backend) -> Policy:
    """The policy of a run, from the states of its algorithm and normaliser. Nothing else of the run is built."""
    policy = Policy(
        build_algorithm(config, specs, Streams(config.seed), backend),
        Normaliser(config.normaliser, specs, config.env.num_envs),
        specs,
        backend,
    )
    policy.algorithm.load_state(algorithm)
    policy.normaliser.load_state(normaliser)
    return policy


def _make_buffers(config: RunConfig, specs: Specs, run: Path | None) -> dict[str, Buffer]:
    def make(buffer: ComponentConfig) -> Buffer:
        made = registry.load("buffer", buffer.kind)
        if getattr(buffer, "hindsight", None) is not None:
            made = partial(made, goals=make_goals(config.env))
        if getattr(buffer, "storage", "memory") != "disk":
            return cast(Buffer, made(buffer, specs, config.env.num_envs))
        folder = run or Path(tempfile.mkdtemp(prefix="reverie-rows-"))
        on_disk: Buffer = made(buffer, specs, config.env.num_envs, CheckpointFolder(folder).store)
        if run is None:  # a session without a folder, as in scripts: delete the rows with it
            weakref.finalize(on_disk, shutil.rmtree, folder, ignore_errors=True)
        return on_disk

    return {name: make(buffer) for name, buffer in config.buffers.items()}


def _make_factories(config: RunConfig, specs: Specs, streams: Streams, backend: Backend) -> Factories:
    def vector(env: EnvConfig, stream: str) -> Vector:
        made = make_vector(env, config.seed, stream)
        if made.specs.observations != specs.observations or made.specs.action != specs.action:
            made.close()
            raise ConfigError(
                "A phase changes the env so that its observations or actions no longer fit the agent.",
                "Keep sizes and action kinds the same in the phase's overrides.",
            )
        return made

    def controller(kind: str) -> Controller:
        made: Controller = registry.load("controller", kind)(specs)
        return made

    def algorithm() -> Algorithm:
        return build_algorithm(config, specs, streams, backend)

    return Factories(vector, algorithm, controller, partial(phase_config, config))
