"""Carries out a run that has a folder: locks it, builds the session, goes on from a checkpoint, saves, cleans up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from reverie.config.build import build, build_evaluator
from reverie.config.schema import RunConfig
from reverie.core.errors import ReverieError, RunError
from reverie.log.console import Console
from reverie.log.sinks import JsonlSink, cut_back
from reverie.runs.checkpoint import Checkpoint
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.folder import RunFolder
from reverie.runs.lock import lock_run
from reverie.runs.policies import PolicyShelf
from reverie.training.interrupt import StopRequest, catch_signals
from reverie.training.orchestrator import Orchestrator
from reverie.training.session import Session


class Execution:
    """One process's work on a run, from ``start`` to ``finished``, ``stopped`` or ``failed``."""

    def __init__(self, config: RunConfig, folder: RunFolder, quiet: bool = False) -> None:
        self.config = config
        self.folder = folder
        self.quiet = quiet
        self.state = "failed"
        self.exit_code = 0
        self.before_start: Callable[[], None] = lambda: None

    def start(self, checkpoint: Checkpoint | None = None, notes: tuple[str, ...] = ()) -> None:
        """Train from a checkpoint, or from the beginning."""
        with ExitStack() as stack:
            stack.enter_context(lock_run(self.folder.path))
            self.before_start()
            cut_back(self.folder.path, checkpoint.summary["logs"] if checkpoint else {})
            self.console = Console(self.folder.path, self.config.horizon_steps, self.quiet)
            logs = JsonlSink(self.folder.path)
            session = build(self.config, [logs, self.console])
            stack.callback(session.close)
            shelf = PolicyShelf(self.folder)
            checkpointer = Checkpointer(self.folder, self.config.checkpoint, session, shelf, logs)
            if checkpoint is not None:
                load_checkpoint(checkpointer, checkpoint)
            self._introduce(session, notes)
            request = stack.enter_context(catch_signals())
            evaluator = build_evaluator(self.config)
            stack.callback(evaluator.close)
            orchestrator = Orchestrator(session, evaluator, [shelf, checkpointer], request)
            try:
                self._run(orchestrator, checkpointer, request)
            finally:
                self.folder.write_status(state=self.state, env_steps=session.counters.env_steps)

    def _introduce(self, session: Session, notes: tuple[str, ...]) -> None:
        config, steps = self.config, session.counters.env_steps
        where = f" from env step {steps:,}" if steps else ""
        self.console.say(f"{self.folder.path}: {config.env.id} with {config.algorithm.kind}, seed {config.seed}{where}")
        for note in notes:
            self.console.say(note)
        self.folder.write_status(state="running")

    def _run(self, orchestrator: Orchestrator, checkpointer: Checkpointer, request: StopRequest) -> None:
        session, name = orchestrator.session, self.folder.name
        try:
            self.state = "finished" if orchestrator.run() else "stopped"
        except Exception as error:
            self._save_after(error, orchestrator, checkpointer)
            raise
        checkpointer.save()  # before the last line of metrics, so that a longer budget can go on as if never ended
        if self.state == "stopped":
            self.exit_code = request.exit_code
            self.console.say(f"Stopped and saved at env step {session.counters.env_steps:,}.")
            self.console.say(f"Go on with: reverie resume {name}")
            return
        session.recorder.flush()
        if self.config.evaluate.final_episodes:
            summary = orchestrator.evaluate(self.config.evaluate.final_episodes)
            self.folder.write_status(final_score=summary["return_mean"])
        checkpointer.shelf.save(session, "final")
        self.console.say(f"Finished after {session.counters.env_steps:,} env steps: {self.folder.path}")

    def _save_after(self, error: Exception, orchestrator: Orchestrator, checkpointer: Checkpointer) -> None:
        """Save if the session is between two steps; in the middle of one the last checkpoint is the sound one."""
        if orchestrator.is_between_steps:
            try:
                checkpointer.save()
            except ReverieError as second:
                self.console.say(second.message)
        what = error.message if isinstance(error, ReverieError) else f"{type(error).__name__}: {error}"
        self.console.say(f"Failed: {what}")
        self.console.say(f"Nothing up to the last checkpoint is lost; go on with: reverie resume {self.folder.name}")


def load_checkpoint(checkpointer: Checkpointer, checkpoint: Checkpoint) -> None:
    """Load a checkpoint that is sound; one that does not fit the session is explained."""
    checkpoint.check()
    try:
        checkpointer.load(checkpoint)
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise RunError(
            f"{checkpoint.path} does not fit this run: {type(error).__name__}: {str(error).splitlines()[0]}",
            "It was made by another algorithm or with other sizes. Resume without overrides, or start a new run "
            "with --init-from to take over the weights that fit.",
        ) from error
