"""From a checked RunConfig to a Session: the only place that constructs components."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reverie import backend
from reverie.config.overrides import phase_config
from reverie.config.schema import RunConfig
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.contracts import Algorithm, Buffer, Controller, Vector
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.rng import Streams
from reverie.core.specs import Specs
from reverie.data.normaliser import Normaliser
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs, make_vector
from reverie.log.recorder import Recorder, Sink
from reverie.policy import Policy
from reverie.training.collector import Collector
from reverie.training.evaluator import Evaluator, check_time_limit
from reverie.training.phases import flatten_phases
from reverie.training.scheduler import Scheduler
from reverie.training.session import Factories, Session


def choose_network(config: RunConfig) -> RunConfig:
    """The config with ``network: auto`` decided by the env's spaces; settings given to auto stay."""
    network = getattr(config.algorithm, "network", None)
    if network is None or network.kind != "auto":
        return config
    from reverie.nets.encoders import choose_network_kind

    kind = choose_network_kind(make_specs(config.env).observations)
    given = {key: value for key, value in network.model_dump(mode="json").items() if value is not None}
    tree = config.model_dump(mode="json")
    tree["algorithm"]["network"] = {**given, "kind": kind}
    return load_config(tree)


def check_episodes_end(config: RunConfig) -> None:
    """Refuse a run that evaluates on an env without a time limit, before there is a folder for it."""
    hooks = [hook.name for phase in flatten_phases(config.phases) for hook in phase.hooks]
    if "evaluate" in hooks or config.evaluate.final_episodes:
        check_time_limit(make_specs(config.env))


def build(config: RunConfig, sinks: Sequence[Sink] = ()) -> Session:
    """All parts of a run, none of them started."""
    settings = config.backend
    backend.configure(settings.device, settings.threads, settings.deterministic, settings.engine)
    specs = make_specs(config.env)
    streams = Streams(config.seed)
    counters = Counters(horizon_steps=config.horizon_steps)
    algorithm = _make_algorithm(config, specs, streams)
    normaliser = Normaliser(config.normaliser, specs, config.env.num_envs)
    policy = Policy(algorithm, normaliser, specs)
    recorder = Recorder(counters, config.log.every_steps, sinks)
    vector = make_vector(config.env, config.seed)
    reads = {name: read.rows for name, read in algorithm.reads.items()}
    return Session(
        config=config,
        streams=streams,
        counters=counters,
        scheduler=Scheduler(config.phases, reads, config.evaluate.warmup_steps),
        algorithm=algorithm,
        normaliser=normaliser,
        buffers=_make_buffers(config, specs),
        vector=vector,
        collector=Collector(vector, policy, counters, recorder, streams),
        recorder=recorder,
        policy=policy,
        factories=_make_factories(config, specs, streams),
        env_config=config.env,
    )


def build_evaluator(config: RunConfig) -> Evaluator:
    """An evaluator for this run; native vectors cannot start chosen episodes, so it plays on sync ones."""
    env = config.env.model_copy(update={"vector": "sync"}) if config.env.vector == "native" else config.env
    return Evaluator(config.evaluate, config.seed, lambda num_envs: make_vector(env, config.seed, "evaluate", num_envs))


def _make_algorithm(config: RunConfig, specs: Specs, streams: Streams) -> Algorithm:
    algorithm: Algorithm = registry.load("algorithm", config.algorithm.kind)(
        config.algorithm, specs, streams["initial weights"]
    )
    return algorithm


def _make_buffers(config: RunConfig, specs: Specs) -> dict[str, Buffer]:
    return {
        name: registry.load("buffer", buffer.kind)(buffer, specs, config.env.num_envs)
        for name, buffer in config.buffers.items()
    }


def _make_factories(config: RunConfig, specs: Specs, streams: Streams) -> Factories:
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

    return Factories(vector, lambda: _make_algorithm(config, specs, streams), controller, partial(phase_config, config))
