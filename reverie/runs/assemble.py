"""Assemble what trains a run: session, sinks, checkpointer, evaluator and the loop.

``Execution`` trains a run with these parts, and ``verify`` trains a segment of it again with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from reverie.backend import Backend, configure_process
from reverie.build import NewAlgorithm, build, build_evaluator, new_algorithm
from reverie.config.agent_checks import check_data
from reverie.config.phases import flatten_phases
from reverie.config.pipeline import Prepared, with_kernels
from reverie.config.schema import RunConfig
from reverie.core.errors import RunError
from reverie.envs.snapshot import cached_verdict
from reverie.envs.snapshot_cache import SnapshotVerdict
from reverie.log.recorder import Sink
from reverie.log.sinks import JsonlSink
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.init_from import load_initial_weights
from reverie.runs.policies import PolicyShelf
from reverie.store.checkpoint import Checkpoint
from reverie.store.run_folder import RunFolder
from reverie.training.evaluator import Evaluator, StopCheck
from reverie.training.orchestrator import CyclePart, Orchestrator
from reverie.training.session import Session


@dataclass(frozen=True)
class Assembly:
    """The parts of one run in one process."""

    session: Session
    checkpointer: Checkpointer
    evaluator: Evaluator
    snapshots: SnapshotVerdict
    """Whether the env can be restored exactly."""

    def start_from(self, checkpoint: Checkpoint | None, run: Path, changed: tuple[str, ...] = ()) -> None:
        """Load a checkpoint, or the initial weights of ``run`` if it starts at the beginning."""
        if checkpoint is not None:
            load_checkpoint(self.checkpointer, checkpoint, changed)
        else:
            load_initial_weights(self.session.algorithm, run)

    def make_loop(self, parts: Sequence[CyclePart], should_stop: StopCheck) -> Orchestrator:
        """The training loop. It keeps the best policy, then calls ``parts`` after each cycle and evaluation."""
        everything = [self.checkpointer.shelf, *parts]
        if not self.session.config.debug:
            return Orchestrator(self.session, self.evaluator, everything, should_stop)
        from reverie.runs.debug_loop import DebugOrchestrator

        return DebugOrchestrator(self.session, self.evaluator, everything, should_stop, self.checkpointer.run.path)


def build_first(prepared: Prepared, is_new: bool = True) -> NewAlgorithm:
    """The algorithm of a run that trains in this process, before the run's folder exists or changes.

    ConfigError if it does not fit the env or the buffers, or, for a new run, if its first update lacks rows.
    """
    configure_process(prepared.config.backend)
    built = new_algorithm(prepared.config, prepared.specs)
    if is_new:
        check_data(prepared.config, built.algorithm.reads)
    return built


def build_new(prepared: Prepared) -> tuple[Prepared, NewAlgorithm]:
    """The algorithm of a new run, and the config with the kernels that were measured for it."""
    built = build_first(prepared)
    chosen = with_kernels(prepared, built.algorithm)
    is_same = Backend.from_settings(chosen.config.backend) == built.backend
    return chosen, built if is_same else build_first(chosen)


@contextmanager
def assemble(
    prepared: Prepared, folder: RunFolder, built: NewAlgorithm, sinks: Sequence[Sink] = ()
) -> Iterator[Assembly]:
    """All parts of a run before its first step. Records go to JSONL files in ``folder`` and to ``sinks``."""
    config, specs = prepared.config, prepared.specs
    with ExitStack() as stack:
        snapshots = cached_verdict(config.env)  # before the envs are made: it decides how they are saved
        logs = JsonlSink(folder.path)
        stack.callback(logs.close)
        session = build(config, [logs, *sinks], folder.path, specs, built)
        del built  # a phase may replace the algorithm: its weights must not stay in memory
        stack.callback(session.close)
        checkpointer = Checkpointer(folder, config.checkpoint, session, PolicyShelf(folder), logs)
        checkpointer.about["environment"] = snapshots.to_json()
        evaluator = build_evaluator(config, specs)
        stack.callback(evaluator.close)
        yield Assembly(session, checkpointer, evaluator, snapshots)


def filled_buffers(config: RunConfig, checkpoint: Checkpoint | None) -> set[str]:
    """Buffers whose data is in the checkpoint, because the run has entered a phase that uses them."""
    if checkpoint is None:
        return set()
    state = checkpoint.read("scheduler")
    entered = list(flatten_phases(config.phases))[: int(state.get("index", 0)) + int(state.get("entered", 0))]
    return {name for phase in entered for name in phase.buffers()}


def load_checkpoint(checkpointer: Checkpointer, checkpoint: Checkpoint, changed: tuple[str, ...] = ()) -> None:
    """Load a checkpoint whose hashes were checked. RunError if it does not fit the session."""
    try:
        checkpointer.load(checkpoint)
        if changed:
            checkpointer.session.scheduler.forget_positions()
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        cause = f" with changed settings ({', '.join(changed)})" if changed else ""
        raise RunError(
            f"{checkpoint.path} does not fit this run{cause}: {type(error).__name__}: {reason}",
            "It was saved by another algorithm or with other sizes, which cannot change on resume. Resume without "
            "overrides, or start a new run with --init-from, which copies the weights that fit.",
        ) from error
