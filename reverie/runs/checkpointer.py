"""Decides when a run is saved, what a checkpoint contains, and which older checkpoints are deleted."""

from __future__ import annotations

from typing import Any

from reverie.config.schema import CheckpointConfig
from reverie.core.contracts import Stateful
from reverie.core.types import State
from reverie.log.sinks import JsonlSink
from reverie.runs.policies import PolicyShelf
from reverie.runs.resume_command import resume_command
from reverie.store.checkpoint import Checkpoint, CheckpointFolder
from reverie.store.files import explain_write_errors
from reverie.store.run_folder import RunFolder, versions
from reverie.training.failures import check_weights
from reverie.training.session import Session


class Checkpointer:
    """Saves at the end of the first cycle after each interval of env steps, updates or cycles."""

    def __init__(
        self, folder: RunFolder, config: CheckpointConfig, session: Session, shelf: PolicyShelf, logs: JsonlSink
    ) -> None:
        self.run = folder
        self.folder = CheckpointFolder(folder.path)
        self.config = config
        self.session = session
        self.shelf = shelf
        self.logs = logs
        self.about: dict[str, Any] = {}
        """Additional entries for the summaries of checkpoints."""
        self._intervals = self._passed()
        self._newest: tuple[State, Checkpoint] | None = None

    def parts(self) -> dict[str, Stateful]:
        """Everything that is saved: the session, and which policy is the best so far."""
        return {**self.session.parts(), "policies": self.shelf}

    def load(self, checkpoint: Checkpoint) -> None:
        """Restore the session from a checkpoint."""
        states = checkpoint.load_into(self.parts())
        self.shelf.load_state(states.pop("policies"), checkpoint.place)
        self.session.load_state(states)
        self._intervals = self._passed()
        self._newest = (self._position(), checkpoint)

    def end_cycle(self, session: Session) -> None:
        before, self._intervals = self._intervals, self._passed()
        phase = session.scheduler.phase
        by_cycles = self.config.every_cycles and phase is not None and phase.duration_cycles
        counted = ("cycles",) if by_cycles else ("env_steps", "updates")
        if any(before[name] != self._intervals[name] for name in counted):
            self.save()

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        """Does nothing: an evaluation changes no state."""

    def save(self) -> Checkpoint:
        """Save now, unless nothing has changed since the last checkpoint. Deletes what is no longer needed."""
        position = self._position()
        if self._newest is None or self._newest[0] != position:
            with explain_write_errors(self.run.path, resume_command(self.run, self.session.config)):
                self._newest = (position, self._save())
        return self._newest[1]

    def _position(self) -> State:
        return {"counters": self.session.counters.state(), "scheduler": self.session.scheduler.state()}

    def _save(self) -> Checkpoint:
        check_weights(self.session.algorithm.policy_state())
        about = {
            **self.about,
            "logs": self.logs.sync(),
            "algorithm": self.session.config.algorithm.kind,
            "env": self.session.config.env.id,
            "best_policy": self.shelf.best_name,
            "versions": versions(),
        }
        checkpoint = self.folder.save(self.parts(), about)
        kept = self._kept()
        self.run.write_status(checkpoint=checkpoint.name)
        self.folder.tidy({c.name for c in kept})
        self.shelf.tidy({str(c.summary["best_policy"]) for c in kept})
        return checkpoint

    def _kept(self) -> list[Checkpoint]:
        known = self.folder.all()
        kept = known[-self.config.keep_last :]
        every = self.config.keep_every_steps
        if every:
            first_of_interval = {c.counters["env_steps"] // every: c for c in reversed(known)}
            kept += [c for c in first_of_interval.values() if c not in kept]
        return kept

    def _passed(self) -> dict[str, int]:
        """Number of intervals of each kind that have passed."""
        config = self.config
        every = {"env_steps": config.every_steps, "updates": config.every_updates, "cycles": config.every_cycles}
        return {name: getattr(self.session.counters, name) // each if each else 0 for name, each in every.items()}
