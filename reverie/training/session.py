"""A run in memory: every part that has memory, listed once. What is not listed here is not saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reverie.config.phases import Phase
from reverie.config.schema import RunConfig
from reverie.core.contracts import Algorithm, Buffer, Controller, Prepares, Stateful, Vector
from reverie.core.counters import Counters
from reverie.core.rng import Streams
from reverie.core.types import State
from reverie.data.normaliser import Normaliser
from reverie.envs.config import EnvConfig
from reverie.log.recorder import Recorder
from reverie.policy import Policy
from reverie.store.checkpoint import ADDED_LATER
from reverie.training.collector import Collector, SeveralBuffers, TakesRows
from reverie.training.monitor import Monitor
from reverie.training.scheduler import Scheduler


@dataclass
class Factories:
    """How to make parts anew in the middle of a run; filled in by :mod:`reverie.build`."""

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
        """Everything with memory, in the order in which it is loaded."""
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

    def enter(self, phase: Phase, previous: Phase | None) -> None:
        """Set everything up for a phase: drop what the one before does not keep, apply overrides, start the envs."""
        is_afresh = not self.collector.now
        if previous is not None:
            is_afresh |= self._drop(previous)
        if self._apply(phase) or is_afresh:
            self.collector.restart()
        self._fill(phase)
        self._prepare(phase)
        self.recorder.begin_phase(phase.name)

    def close(self) -> None:
        self.vector.close()
        self.recorder.close()

    def target(self, names: Sequence[str]) -> TakesRows:
        """Where a collect hook puts its rows."""
        buffers = [self.buffers[name] for name in names]
        return buffers[0] if len(buffers) == 1 else SeveralBuffers(buffers)

    def usage(self, phase: Phase) -> dict[str, float]:
        """Metrics of a phase's buffers: ``replay/<name>`` of its own, ``replay/<buffer>/<name>`` of others."""
        found = self.buffers[phase.buffer].metrics()
        for name in phase.buffers()[1:]:
            found |= {f"{name}/{key}": value for key, value in self.buffers[name].metrics().items()}
        return {f"replay/{key}": value for key, value in found.items()}

    def _fill(self, phase: Phase) -> None:
        """Load stored data into buffers that have a source. The first update is already normalised by them."""
        for name in phase.buffers():
            fill = getattr(self.buffers[name], "fill", None)
            if fill is not None:
                self.normaliser.learn_from(fill())

    def _prepare(self, phase: Phase) -> None:
        """Show the buffers to an algorithm that wants to see the data before it learns from them."""
        if isinstance(self.algorithm, Prepares):
            self.algorithm.prepare({name: self.buffers[name] for name in phase.buffers()})

    def _drop(self, previous: Phase) -> bool:
        """Forget what a phase does not pass on; whether new episodes have to begin."""
        kept = previous.keep
        if "algorithm" not in kept:
            self.algorithm = self.policy.algorithm = self.factories.algorithm()
        if "normaliser" not in kept:
            self.normaliser.reset()
        if "buffer" not in kept:
            for name in previous.buffers():
                self.buffers[name].clear()
        # A new algorithm cannot go on in mid-episode: it has no carry from before.
        return not {"algorithm", "episodes"} <= set(kept)

    def _apply(self, phase: Phase) -> bool:
        """Put the phase's config and controller in place; whether the envs were made anew."""
        config = self.factories.phase_config(phase)
        self.algorithm.config = config.algorithm
        self.scheduler.update_rows = {name: read.rows for name, read in self.algorithm.reads.items()}
        self.collector.use_controller(self.factories.controller(phase.controller) if phase.controller else None)
        if config.env == self.env_config:
            return False
        # A stream of its own, so that no episode of another phase is played again.
        self._replace_vector(config.env, f"collect/{self.scheduler.index}")
        return True

    def _return_to_phase(self) -> None:
        """Set up the phase that was entered last, with the envs (and their stream) of the last change before it."""
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
