"""The loop: asks the scheduler what is due and does it. It knows no algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from reverie.core.errors import TrainingError
from reverie.core.types import Update
from reverie.training.evaluator import Evaluator, summarise
from reverie.training.phases import Hook, Phase
from reverie.training.scheduler import Step, StepKind
from reverie.training.session import Session


class CyclePart(Protocol):
    """Something that looks at the session whenever a cycle has ended: checkpoints, monitors, videos."""

    def end_cycle(self, session: Session) -> None: ...

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None: ...


class Orchestrator:
    """Runs a session to its end, or until ``should_stop`` says so between two steps."""

    def __init__(
        self,
        session: Session,
        evaluator: Evaluator,
        parts: Sequence[CyclePart] = (),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.session = session
        self.evaluator = evaluator
        self.parts = parts
        self.should_stop = should_stop
        self.is_between_steps = True
        self._steps = {
            StepKind.ENTER: self._enter, StepKind.COLLECT: self._collect, StepKind.UPDATE: self._update,
            StepKind.EVALUATE: self._evaluate, StepKind.END_CYCLE: self._end_cycle,
        }  # fmt: skip

    def run(self) -> bool:
        """Whether the run came to its end; False when it was asked to stop."""
        session = self.session
        while not self.should_stop():  # before the scheduler moves, so that a stop is where the last step ended
            step = None if self._is_solved() else session.scheduler.next(session.counters, session.recorder.latest)
            if step is None:
                return True
            self.is_between_steps = step.kind is StepKind.EVALUATE  # which leaves the session as it is
            updates = self._steps[step.kind](step)
            session.scheduler.finish(step, session.counters, updates)
            self.is_between_steps = True
            if step.kind is StepKind.END_CYCLE:
                for part in self.parts:
                    part.end_cycle(session)
        return False

    def evaluate(self, episodes: int) -> dict[str, float]:
        """Score the policy as it is; changes nothing but the recorded metrics."""
        session = self.session
        scores = self.evaluator.evaluate(session.policy, episodes, session.counters.clock())
        summary = summarise(scores, session.config.seed)
        session.recorder.write_now("evaluate", summary)
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
        buffer = self.session.buffers[step.phase.buffer]
        if hook.episodes is not None:
            collector.collect_episodes(buffer, hook.episodes)
        else:
            collector.collect_rows(buffer, hook.rows or collector.num_envs)
        return 0

    def _update(self, step: Step) -> int:
        session, name = self.session, _hook(step).name
        buffer = session.buffers[step.phase.buffer]
        read = session.algorithm.reads[name]
        batch = buffer.sample(read, session.collector.now, session.streams[f"sample/{name}"])
        batch = session.normaliser.normalise_batch(batch)
        update: Update = getattr(session.algorithm, name)(
            batch, session.counters.clock(), session.streams[f"update/{name}"]
        )
        _check_finite(update, step.phase, name)
        if update.write_back is not None:
            buffer.write_back(update.write_back)
        session.counters.updates += update.count
        session.recorder.add(name, update.metrics)
        return update.count

    def _evaluate(self, step: Step) -> int:
        self.evaluate(_hook(step).episodes or 1)
        return 0

    def _end_cycle(self, step: Step) -> int:
        self.session.counters.cycles += 1
        self.session.normaliser.advance()
        used = self.session.buffers[step.phase.buffer].metrics()
        self.session.recorder.end_cycle({f"replay/{name}": value for name, value in used.items()})
        return 0

    def _is_solved(self) -> bool:
        """Whether the run ends early: between cycles, if allowed and the last evaluation is good enough."""
        if not self.session.scheduler.between_cycles:
            return False
        goal = self.session.config.env.spec.solved_at
        score = self.session.recorder.latest.get("evaluate/return_mean")
        is_wanted = self.session.config.early_stop == "solved"
        return is_wanted and goal is not None and score is not None and score >= goal


def _hook(step: Step) -> Hook:
    assert step.hook is not None
    return step.hook


def _check_finite(update: Update, phase: Phase, name: str) -> None:
    """One look per update: a loss that is not a number has already spoilt the weights."""
    loss = update.metrics.get("loss")
    if loss is not None and not math.isfinite(float(loss)):
        raise TrainingError(
            f"The loss of '{name}' in phase '{phase.name}' is {float(loss)}.",
            "Lower the learning rate, clip gradients (max_grad_norm) or normalise observations and rewards.",
        )
