"""A run in memory: every part that has state, listed once. What is not listed here is not saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from reverie.config.phases import Phase
from reverie.config.schema import RunConfig
from reverie.core.contracts import Algorithm, Buffer, Controller, HasSource, Prepares, Stateful, Vector
from reverie.core.counters import Counters
from reverie.core.rng import Streams
from reverie.core.types import State
from reverie.data.normaliser import Normaliser
from reverie.envs.config import EnvConfig
from reverie.log.recorder import Recorder
from reverie.policy import Policy
from reverie.store.checkpoint import ADDED_LATER
from reverie.training.collector import BufferGroup, Collector, RowSink
from reverie.training.monitor import Monitor
from reverie.training.scheduler import Scheduler


@dataclass
class Factories:
    """How to make new parts in the middle of a run. Provided by :mod:`reverie.build`."""

    vector: Callable[[EnvConfig, str], Vector]
    algorithm: Callable[[], Algorithm]
    controller: Callable[[str], Controller]
    phase_config: Callable[[Phase], RunConfig]


@dataclass
class Session:
    """The parts of a run and how a phase sets them up."""

    config: RunConfig
    streams: Streams
    counters: Counters
    scheduler: Scheduler
    algorithm: Algorithm
    normaliser: Normaliser
    buffers: dict[str, Buffer]
    vector: Vector
    collector: Collector
    recorder: Recorder
    policy: Policy
    monitor: Monitor
    factories: Factories
    env_config: EnvConfig
    env_stream: str = "collect"

    def parts(self) -> dict[str, Stateful]:
        """Everything that has state, in the order of loading."""
        buffers = {f"buffer_{name}": buffer for name, buffer in self.buffers.items()}
        return {
            "counters": self.counters, "streams": self.streams, "scheduler": self.scheduler,
            "algorithm": self.algorithm, "normaliser": self.normaliser, **buffers,
            "vector": self.vector, "collector": self.collector, "recorder": self.recorder,
            "monitor": self.monitor,
        }  # fmt: skip

    def state(self) -> dict[str, State]:
        return {name: part.state() for name, part in self.parts().items()}

    def load_state(self, state: dict[str, State]) -> None:
        self.scheduler.load_state(state["scheduler"])
        self._return_to_phase()
        for name, part in self.parts().items():
            if name in state or name not in ADDED_LATER:
                part.load_state(state[name])
        self.recorder.rename(self.algorithm.traits.current_metric)

    def enter(self, phase: Phase, previous: Phase | None) -> None:
        """Set everything up for a phase: drop what the previous one does not keep, apply overrides, start the envs."""
        needs_restart = not self.collector.now
        if previous is not None:
            needs_restart |= self._drop(previous)
        if self._apply(phase) or needs_restart:
            self.collector.restart()
        self._fill(phase)
        self._prepare(phase)
        self.recorder.begin_phase(phase.name)

    def close(self) -> None:
        self.vector.close()
        self.recorder.close()

    def target(self, names: Sequence[str]) -> RowSink:
        """The buffer, or the group of buffers, of these names."""
        buffers = [self.buffers[name] for name in names]
        return buffers[0] if len(buffers) == 1 else BufferGroup(buffers)

    def usage(self, phase: Phase) -> dict[str, float]:
        """Metrics of a phase's buffers: ``replay/<name>`` for its main one, ``replay/<buffer>/<name>`` for others."""
        found = self.buffers[phase.buffer].metrics()
        for name in phase.buffers()[1:]:
            found |= {f"{name}/{key}": value for key, value in self.buffers[name].metrics().items()}
        return {f"replay/{key}": value for key, value in found.items()}

    def _fill(self, phase: Phase) -> None:
        """Load stored data into buffers that have a source. Its statistics already normalise the first update."""
        for name in phase.buffers():
            buffer = self.buffers[name]
            if isinstance(buffer, HasSource):
                self.normaliser.learn_from(buffer.fill())

    def _prepare(self, phase: Phase) -> None:
        """Pass the buffers to an algorithm that reads the data before it learns from them."""
        if self.algorithm.traits.prepares:
            cast(Prepares, self.algorithm).prepare({name: self.buffers[name] for name in phase.buffers()})

    def _drop(self, previous: Phase) -> bool:
        """Reset what a phase does not keep. Returns whether new episodes have to start."""
        kept = previous.keep
        if "algorithm" not in kept:
            self.algorithm = self.policy.algorithm = self.factories.algorithm()
        if "normaliser" not in kept:
            self.normaliser.reset()
        if "buffer" not in kept:
            for name in previous.buffers():
                self.buffers[name].clear()
        # A new algorithm has no carry, so it cannot continue in the middle of an episode.
        return not {"algorithm", "episodes"} <= set(kept)

    def _apply(self, phase: Phase) -> bool:
        """Apply the phase's config and controller. Returns whether the envs were replaced."""
        config = self.factories.phase_config(phase)
        self.algorithm.config = config.algorithm
        self.scheduler.update_rows = {name: read.rows for name, read in self.algorithm.reads.items()}
        self.collector.use_controller(self.factories.controller(phase.controller) if phase.controller else None)
        if config.env == self.env_config:
            return False
        # A separate random stream, so that the episodes of another phase are not repeated.
        self._replace_vector(config.env, f"collect/{self.scheduler.index}")
        return True

    def _return_to_phase(self) -> None:
        """Set up the phase that was entered last, with the envs and the random stream that it uses."""
        entered = self.scheduler.phases[: self.scheduler.index + self.scheduler.entered]
        env, stream = self.config.env, "collect"
        for index, phase in enumerate(entered):
            wanted = self.factories.phase_config(phase).env
            if wanted != env:
                env, stream = wanted, f"collect/{index}"
        if (env, stream) != (self.env_config, self.env_stream):
            self._replace_vector(env, stream)
        if entered:
            self._apply(entered[-1])

    def _replace_vector(self, env: EnvConfig, stream: str) -> None:
        self.vector.close()
        self.vector = self.collector.vector = self.factories.vector(env, stream)
        self.env_config, self.env_stream = env, stream
