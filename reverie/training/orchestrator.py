"""The training loop: asks the scheduler for the next step and carries it out. It knows no algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from reverie.config.phases import Hook
from reverie.core.errors import TooFewRowsError, TrainingError
from reverie.core.types import Batch, Update
from reverie.training.evaluator import EvaluationStopped, Evaluator, StopCheck, never, summarise
from reverie.training.failures import UpdateCall, check_finite, explain_failure
from reverie.training.scheduler import Step, StepKind
from reverie.training.session import Session
from reverie.training.validation import held_out_means


class CyclePart(Protocol):
    """Called when a cycle or an evaluation has ended: checkpoints, videos, foresight files."""

    def end_cycle(self, session: Session) -> None: ...

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None: ...


PARTS = {StepKind.COLLECT: "collect", StepKind.UPDATE: "update", StepKind.EVALUATE: "evaluate", None: "save"}
"""Names in machine.jsonl of the parts of the loop. ``save`` is all that is called when a cycle ends."""


class Orchestrator:
    """Runs a session to its end. ``should_stop`` can stop it between two steps or within an evaluation."""

    def __init__(
        self,
        session: Session,
        evaluator: Evaluator,
        parts: Sequence[CyclePart] = (),
        should_stop: StopCheck = never,
    ) -> None:
        self.session = session
        self.evaluator = evaluator
        self.parts = parts
        self.should_stop = should_stop
        self.is_between_steps = True
        self.seconds = dict.fromkeys(PARTS.values(), 0.0)
        """Time per part of the loop in this process. Only shown, nothing depends on it."""
        self._steps = {
            StepKind.ENTER: self._enter, StepKind.COLLECT: self._collect, StepKind.UPDATE: self._update,
            StepKind.EVALUATE: self._evaluate, StepKind.VALIDATE: self._validate,
            StepKind.END_CYCLE: self._end_cycle,
        }  # fmt: skip

    def run(self) -> bool:
        """Returns True at the end of the run, False if it was asked to stop."""
        session = self.session
        while not self.should_stop():  # before the scheduler advances, so that a stop is at the end of a step
            step = None if self._is_solved() else session.scheduler.next(session.counters, session.recorder.latest)
            if step is None:
                return True
            # An evaluation does not change the session until its scores are written.
            self.is_between_steps = step.kind is StepKind.EVALUATE
            started = perf_counter()
            epoch_calls = self._epoch_calls(step)
            try:
                updates = self._steps[step.kind](step)
            except EvaluationStopped:
                return False  # the hook is still due, and a resume repeats it
            self._count_seconds(step.kind, started)
            session.scheduler.finish(step, session.counters, updates, epoch_calls)
            self.is_between_steps = True
            if step.kind is StepKind.END_CYCLE:
                started = perf_counter()
                for part in self.parts:
                    part.end_cycle(session)
                self._count_seconds(None, started)
        return False

    def machine(self) -> dict[str, float]:
        """Seconds per part of the loop since the start of this process, for machine.jsonl."""
        return {f"speed/{part}_seconds": seconds for part, seconds in self.seconds.items()}

    def evaluate(self, episodes: int, should_stop: StopCheck = never) -> dict[str, float]:
        """Score the current policy. Changes nothing but the recorded metrics."""
        session = self.session
        clock = session.counters.clock()
        scores = self.evaluator.evaluate(session.policy, episodes, clock, should_stop)
        foresight = self.evaluator.measure_foresight(session.policy, clock, should_stop)
        summary = summarise(scores, session.config.seed, session.config.env.id) | (
            foresight.metrics() if foresight else {}
        )
        self.is_between_steps = False  # a resume from a save between here and the end of the step would repeat the line
        session.recorder.write_now("evaluate", summary)
        session.recorder.show("histogram", "evaluate/returns", values=[score.total for score in scores])
        for part in self.parts:
            part.end_evaluation(session, summary)
        return summary

    def _enter(self, step: Step) -> int:
        index = self.session.scheduler.index
        previous = self.session.scheduler.phases[index - 1] if index else None
        self.session.enter(step.phase, previous)
        return 0

    def _collect(self, step: Step) -> int:
        hook, collector = _hook(step), self.session.collector
        buffer = self.session.target(step.phase.filled_by(hook))
        if hook.episodes is not None:
            collector.collect_episodes(buffer, hook.episodes)
        else:
            collector.collect_rows(buffer, hook.rows or collector.num_envs)
        return 0

    def _update(self, step: Step) -> int:
        session, hook = self.session, _hook(step)
        name, buffer_name = hook.name, step.phase.read_by(hook)
        buffer = session.buffers[buffer_name]
        read = session.algorithm.reads[name]
        try:
            batch = buffer.sample(read, session.collector.now, session.streams[f"sample/{name}"])
        except TooFewRowsError as error:
            error.resume_with = f"buffers.{buffer_name}.min_rows={max(1, error.rows)}"
            error.fix += f" Or learn from fewer rows: {error.resume_with}"
            raise
        session.normaliser.advance_rewards()
        batch = session.normaliser.normalise_batch(batch)
        counters, env_id = session.counters, session.config.env.id
        call = UpdateCall(name, step.phase.name, env_id, batch, counters.env_steps, counters.updates)
        try:
            update = self.learn(name, batch)
        except (MemoryError, RuntimeError) as error:
            explain_failure(error, call)
            raise
        check_finite(update, call)
        _check_progress(update, hook)
        if update.write_back is not None:
            buffer.write_back(update.write_back)
        session.counters.count_updates(name, update.count)
        session.recorder.add(name, update.metrics)
        return update.count

    def _epoch_calls(self, step: Step) -> int:
        """Calls that the epochs of an update hook need for the rows now in its buffer. 0 without epochs."""
        hook = step.hook
        if hook is None or hook.epochs is None:
            return 0
        progress = self.session.scheduler.current
        if progress.epoch_calls:
            return progress.epoch_calls  # the epochs of this cycle have begun
        rows = self.session.algorithm.reads[hook.name].rows
        assert rows, "checked when the run is built"
        stored = len(self.session.buffers[step.phase.read_by(hook)])
        return max(1, -(-hook.epochs * stored // rows))

    def learn(self, hook: str, batch: Batch) -> Update:
        """Call an update hook of the algorithm. numpy need not warn of overflows: ``check_finite`` finds them."""
        session = self.session
        with np.errstate(over="ignore", invalid="ignore"):
            update: Update = getattr(session.algorithm, hook)(
                batch, session.counters.clock(), session.streams[f"update/{hook}"]
            )
        return update

    def _evaluate(self, step: Step) -> int:
        self.evaluate(_hook(step).episodes or 1, self.should_stop)
        return 0

    def _validate(self, step: Step) -> int:
        means = held_out_means(self.session, step.phase, _hook(step).batches or 1)
        self.session.recorder.write_now("validate", means)
        return 0

    def _end_cycle(self, step: Step) -> int:
        self.session.counters.cycles += 1
        self.session.normaliser.advance()
        machine = {**self.machine(), **self.session.usage(step.phase)}
        machine |= {"env/crashes": float(self.session.vector.crashes)}
        self.session.recorder.end_cycle({**machine, "usage/env_seconds": self.session.collector.env_seconds})
        return 0

    def _count_seconds(self, kind: StepKind | None, started: float) -> None:
        if kind in PARTS:
            self.seconds[PARTS[kind]] += perf_counter() - started

    def _is_solved(self) -> bool:
        """Whether ``early_stop: solved`` is set and the last evaluation reached the goal. False within a cycle."""
        if not self.session.scheduler.between_cycles or self.session.config.early_stop != "solved":
            return False
        goal = self.session.config.env.spec.solved_at
        score = self.session.recorder.latest.get("evaluate/return_mean")
        return goal is not None and score is not None and score >= goal


def _hook(step: Step) -> Hook:
    assert step.hook is not None
    return step.hook


def _check_progress(update: Update, hook: Hook) -> None:
    """A hook that is called until it has done a number of updates must do at least one per call."""
    has_amount = any(amount is not None for amount in (hook.updates, hook.train_ratio, hook.updates_per_step))
    if has_amount and update.count < 1:
        raise TrainingError(
            f"'{hook.name}' reported {update.count} updates, so the cycle would never end.",
            f"Return Update(count=...) of at least 1, or write '{hook.name}: {{}}' to call it once per cycle.",
        )
