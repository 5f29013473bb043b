"""From a checked RunConfig to a Session: the only place that constructs components."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from reverie.backend import Backend, without_weights
from reverie.config.checks import raise_findings
from reverie.config.data_checks import check_order_of_data
from reverie.config.fields import networks_of
from reverie.config.overrides import phase_config
from reverie.config.phases import flatten_phases
from reverie.config.schema import EvaluateConfig, RunConfig
from reverie.config.tree import get, leaves, put
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Algorithm, Buffer, Controller, Vector
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.reads import Read
from reverie.core.rng import Streams, make_generator
from reverie.core.specs import Specs
from reverie.core.traits import algorithm_traits, buffer_traits, check_actions
from reverie.core.types import State
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer, known_extras
from reverie.data.normaliser import Normaliser
from reverie.data.source import check_fits, check_holdout, open_source
from reverie.envs.action_repeat import action_repeat
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs, make_vector
from reverie.log.recorder import Recorder, Sink
from reverie.machine.memory import free_memory
from reverie.policy import Policy, make_algorithm
from reverie.store.checkpoint import CheckpointFolder
from reverie.training.collector import Collector
from reverie.training.evaluator import Evaluator, check_time_limit, with_limit
from reverie.training.monitor import Monitor
from reverie.training.monitor_rules import Task
from reverie.training.scheduler import Scheduler, updates_per_step
from reverie.training.session import Factories, Session


def choose_network(config: RunConfig) -> RunConfig:
    """The config with every network of kind ``auto`` decided by the env's spaces; settings given to auto stay."""
    undecided = [("algorithm", *path) for path, network in networks_of(config.algorithm) if network.kind == "auto"]
    if not undecided:
        return config
    from reverie.nets.encoders import choose_network_kind

    kind = choose_network_kind(make_specs(config.env).observations)
    tree = config.model_dump(mode="json")
    for path in undecided:
        given = {key: value for key, value in get(tree, path).items() if value is not None}
        put(tree, path, {**given, "kind": kind})
    return load_config(tree)


def choose_storage(config: RunConfig) -> RunConfig:
    """The config with ``storage: auto`` of buffers decided: memory, if all of them fit into half of what is free."""
    open_names = [name for name, buffer in config.buffers.items() if getattr(buffer, "storage", "") == "auto"]
    if not open_names:
        return config
    expected = ExpectedRows(make_specs(config.env), config.env.num_envs, known_extras(config.algorithm))
    needed = sum(forecast_buffer(buffer, expected).memory for buffer in config.buffers.values())
    free = free_memory()
    storage = "memory" if free is None or needed <= free // 2 else "disk"
    chosen = {name: config.buffers[name].model_copy(update={"storage": storage}) for name in open_names}
    return config.model_copy(update={"buffers": {**config.buffers, **chosen}})


def check_episodes_end(config: RunConfig) -> None:
    """Refuse a run that evaluates on an env whose episodes do not end, before there is a folder for it."""
    hooks = [hook.name for phase in flatten_phases(config.phases) for hook in phase.hooks]
    if "evaluate" in hooks or config.evaluate.final_episodes:
        check_time_limit(config.env, make_specs(config.env))


def check_sources(config: RunConfig) -> None:
    """Refuse stored data that are not there, are of another env or too few, before there is a folder for the run."""
    for name, buffer in config.buffers.items():
        text, share = getattr(buffer, "source", None), getattr(buffer, "holdout", 0.0)
        if text is None:
            continue
        source = open_source(text)
        check_fits(source, make_specs(config.env), text)
        if share:
            check_holdout(source, share, f"buffers.{name}.holdout")


def check_agent(config: RunConfig) -> None:
    """Refuse an agent that does not fit the env or its buffers; it is made without weights, however big it is.

    Classes of one's own may look at their weights: only the run itself shows whether they can be made.
    """
    if any(path[-1] == "kind" and "." in str(kind) for path, kind in leaves(config.algorithm.model_dump())):
        return
    with without_weights() as backend:
        algorithm = _make_algorithm(config, make_specs(config.env), Streams(config.seed), backend)
    check_reads(config, algorithm.reads)
    check_data(config, algorithm.reads)


def check_data(config: RunConfig, reads: Mapping[str, Read]) -> None:
    """Refuse updates that come before there are enough rows, also those whose moment depends on the size of a batch."""
    raise_findings(check_order_of_data(config, {name: read.rows for name, read in reads.items()}))


def check_reads(config: RunConfig, reads: Mapping[str, Read]) -> None:
    """Refuse phases whose buffer cannot serve what their hooks read, and ratios to what has no size; all at once."""
    errors: dict[str, ConfigError] = {}
    for phase in flatten_phases(config.phases):
        for hook in (hook for hook in phase.hooks if hook.name in reads):
            try:
                _check_serves(config, phase.read_by(hook), hook.name, reads[hook.name])
                updates_per_step(hook, reads[hook.name].rows)
            except ConfigError as error:
                errors.setdefault(error.message, error)
    if errors:
        fixes = "\n".join(dict.fromkeys(error.fix for error in errors.values()))
        raise ConfigError("\n".join(errors), fixes)


def _check_serves(config: RunConfig, buffer: str, hook: str, read: Read) -> None:
    kind = config.buffers[buffer].kind
    is_on_policy = algorithm_traits(config.algorithm.kind).on_policy
    if _serves(kind, read, is_on_policy):
        return
    able = " or ".join(other for other in registry.kinds("buffer") if _serves(other, read, is_on_policy))
    fix = f"Set buffers.{buffer}.kind={able}" if able else "Choose another algorithm"
    why = f"its hook {hook} reads {type(read).__name__}, which that does not serve"
    if _serves(kind, read, is_on_policy=False):
        why = "it is on-policy, and that also serves rows of older policies"
    raise ConfigError(
        f"{config.algorithm.kind} cannot learn from buffers.{buffer}.kind={kind}: {why}.",
        f"{fix}, or name the read in the traits of {kind}." if "." in kind else f"{fix}.",
    )


def _serves(kind: str, read: Read, is_on_policy: bool) -> bool:
    """Whether a buffer answers such a read of an algorithm."""
    traits = buffer_traits(kind)
    return isinstance(read, traits.serves) and not (is_on_policy and traits.replays)


def build(config: RunConfig, sinks: Sequence[Sink] = (), run: Path | None = None) -> Session:
    """All parts of a run, none of them started; ``run`` is its folder, for buffers that keep rows on disk."""
    backend = Backend.from_settings(config.backend)
    specs = make_specs(config.env)
    streams = Streams(config.seed)
    counters = Counters(horizon_steps=config.horizon_steps)
    algorithm = _make_algorithm(config, specs, streams, backend)
    check_reads(config, algorithm.reads)
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
    """A second algorithm in the same state, to try things with; the session and its streams do not notice."""
    config, policy, rng = session.algorithm.config, session.policy, make_generator(session.config.seed, "copy")
    copy = make_algorithm(registry.load("algorithm", config.kind), config, policy.specs, rng, policy.backend)
    copy.load_state(session.algorithm.state())
    return copy


def build_evaluator(config: RunConfig) -> Evaluator:
    """An evaluator for this run."""
    return make_evaluator(config.env, config.evaluate, config.seed)


def make_evaluator(env: EnvConfig, settings: EvaluateConfig, seed: int) -> Evaluator:
    """An evaluator on this env; native vectors cannot start chosen episodes, so it plays on sync ones."""
    played = env.model_copy(update={"vector": "sync"}) if env.vector == "native" else env

    def make(num_envs: int) -> Vector:
        made = make_vector(played, seed, "evaluate", num_envs)
        if made.specs.max_episode_steps is not None:
            return made
        made.close()
        return make_vector(with_limit(played), seed, "evaluate", num_envs)

    return Evaluator(settings, seed, make)


def build_policy(config: RunConfig, algorithm: State, normaliser: State, backend: Backend) -> Policy:
    """The policy of a run as these states of its parts have it, without the rest of the run."""
    specs = make_specs(config.env)
    policy = Policy(
        _make_algorithm(config, specs, Streams(config.seed), backend),
        Normaliser(config.normaliser, specs, config.env.num_envs),
        specs,
        backend,
    )
    policy.algorithm.load_state(algorithm)
    policy.normaliser.load_state(normaliser)
    return policy


def _make_algorithm(config: RunConfig, specs: Specs, streams: Streams, backend: Backend) -> Algorithm:
    kind = config.algorithm.kind
    check_actions(kind, specs.action)
    rng = streams["initial weights"]
    algorithm = make_algorithm(registry.load("algorithm", kind), config.algorithm, specs, rng, backend)
    unread = [hook for hook in algorithm.traits.hooks if hook not in getattr(algorithm, "reads", {})]
    if unread:
        raise ConfigError(
            f"The algorithm '{kind}' does not say what its hook {' and '.join(unread)} reads.",
            f"Set self.reads = {{'{unread[0]}': Rollout()}}, or another read of reverie.core.reads.",
        )
    return algorithm


def _make_buffers(config: RunConfig, specs: Specs, run: Path | None) -> dict[str, Buffer]:
    def make(buffer: ComponentConfig) -> Buffer:
        made = registry.load("buffer", buffer.kind)
        if getattr(buffer, "storage", "memory") != "disk":
            return cast(Buffer, made(buffer, specs, config.env.num_envs))
        folder = run or Path(tempfile.mkdtemp(prefix="reverie-rows-"))
        on_disk: Buffer = made(buffer, specs, config.env.num_envs, CheckpointFolder(folder).store)
        if run is None:  # a session without a folder, as in scripts: its rows go with it
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
        return _make_algorithm(config, specs, streams, backend)

    return Factories(vector, algorithm, controller, partial(phase_config, config))
