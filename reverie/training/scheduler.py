"""What happens next: a pure state machine over phases and counters, with no idea of algorithms or envs.

``next`` says which step is due, the orchestrator carries it out and reports back with ``finish``. The scheduler
moves on by what was *done* (the counters), never by what was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.types import State
from reverie.training.phases import Hook, Phase, Until, flatten_phases


class StepKind(StrEnum):
    ENTER = "enter"
    COLLECT = "collect"
    UPDATE = "update"
    EVALUATE = "evaluate"
    VALIDATE = "validate"
    END_CYCLE = "end_cycle"


@dataclass(frozen=True)
class Step:
    """One thing for the orchestrator to do."""

    kind: StepKind
    phase: Phase
    hook: Hook | None = None


@dataclass
class HookProgress:
    """What one hook of the current phase has done: in this cycle, since the phase began, and how often."""

    cycle_updates: int = 0
    phase_updates: int = 0
    ran: bool = False
    intervals: int = 0


class Scheduler:
    """Walks through the phases. ``update_rows`` gives the rows that one update of a hook replays."""

    def __init__(self, phases: tuple[Phase, ...], update_rows: Mapping[str, int | None], warmup_steps: int = 0) -> None:
        self.phases = tuple(flatten_phases(phases))
        self.update_rows = update_rows
        self.warmup_steps = warmup_steps
        self.index = 0
        self.entered = False
        self.hook = 0
        self.between_cycles = False
        self.start = {"env_steps": 0, "updates": 0, "cycles": 0}
        self.progress: list[HookProgress] = []

    @property
    def phase(self) -> Phase | None:
        return self.phases[self.index] if self.index < len(self.phases) else None

    def next(self, counters: Counters, metrics: Mapping[str, float]) -> Step | None:
        """The step that is due now; None when all phases are over. ``metrics`` holds the newest values."""
        if self.between_cycles and self._is_over(counters, metrics):
            if self.index == len(self.phases) - 1:
                return None  # and stay here: resumed with a longer budget, the last phase goes on
            self.index += 1
            self.entered = False
            self.between_cycles = False
        phase = self.phase
        if phase is None:
            return None
        if not self.entered:
            return Step(StepKind.ENTER, phase)
        while self.hook < len(phase.hooks):
            hook = phase.hooks[self.hook]
            if self._is_due(hook, self.progress[self.hook], counters):
                return Step(_kind_of(hook), phase, hook)
            self.hook += 1
        return Step(StepKind.END_CYCLE, phase)

    def finish(self, step: Step, counters: Counters, updates: int = 0) -> None:
        """The step was carried out; ``updates`` is what an update hook did."""
        if step.kind is StepKind.ENTER:
            self._enter(step.phase, counters)
        elif step.kind is StepKind.END_CYCLE:
            self._end_cycle()
        else:
            self.between_cycles = False
            progress = self.progress[self.hook]
            progress.ran = True
            progress.cycle_updates += updates
            progress.phase_updates += updates
            progress.intervals = self._intervals(step.hook, counters)

    def state(self) -> State:
        return {
            "index": self.index,
            "entered": self.entered,
            "hook": self.hook,
            "between_cycles": self.between_cycles,
            "start": dict(self.start),
            "progress": {str(i): dict(vars(p)) for i, p in enumerate(self.progress)},
        }

    def load_state(self, state: State) -> None:
        self.index, self.entered, self.hook = state["index"], state["entered"], state["hook"]
        self.between_cycles = state["between_cycles"]
        self.start = dict(state["start"])
        self.progress = [HookProgress(**state["progress"][str(i)]) for i in range(len(state["progress"]))]

    def _enter(self, phase: Phase, counters: Counters) -> None:
        self.entered = True
        self.start = {key: getattr(counters, key) for key in self.start}
        self.progress = [HookProgress() for _ in phase.hooks]
        self.hook = 0

    def _is_due(self, hook: Hook, progress: HookProgress, counters: Counters) -> bool:
        kind = _kind_of(hook)
        if kind is StepKind.UPDATE and not progress.ran and self._waits(hook, progress, counters):
            return False
        if kind is StepKind.UPDATE and (owed := self._owed(hook, progress, counters)) is not None:
            return owed > 0
        if progress.ran or self._waits(hook, progress, counters):
            return False
        return kind is not StepKind.EVALUATE or counters.env_steps >= self.warmup_steps

    def _owed(self, hook: Hook, progress: HookProgress, counters: Counters) -> int | None:
        """Updates still to be done in this cycle; None for a hook that simply runs once."""
        if hook.updates is not None:
            return hook.updates - progress.cycle_updates
        if hook.train_ratio is None and hook.updates_per_step is None:
            return None
        return int(self._since("env_steps", counters) * self.rate(hook)) - progress.phase_updates

    def rate(self, hook: Hook) -> float:
        """Updates per env step."""
        found = updates_per_step(hook, self.update_rows.get(hook.name))
        assert found is not None
        return found

    def _waits(self, hook: Hook, progress: HookProgress, counters: Counters) -> bool:
        every = hook.every_steps or hook.every_updates or hook.every_cycles
        return every is not None and self._intervals(hook, counters) <= progress.intervals

    def _intervals(self, hook: Hook | None, counters: Counters) -> int:
        """How many of the hook's intervals have passed since the phase began."""
        if hook is None:
            return 0
        if hook.every_steps:
            return self._since("env_steps", counters) // hook.every_steps
        if hook.every_updates:
            return self._since("updates", counters) // hook.every_updates
        if hook.every_cycles:
            return (self._since("cycles", counters) + 1) // hook.every_cycles
        return 0

    def _since(self, name: str, counters: Counters) -> int:
        return int(getattr(counters, name)) - self.start[name]

    def _end_cycle(self) -> None:
        self.hook = 0
        self.between_cycles = True
        for progress in self.progress:
            progress.ran = False
            progress.cycle_updates = 0

    def _is_over(self, counters: Counters, metrics: Mapping[str, float]) -> bool:
        phase = self.phase
        if phase is None:
            return False
        limits = (phase.duration_steps, phase.duration_updates, phase.duration_cycles)
        names = ("env_steps", "updates", "cycles")
        spent = any(limit and self._since(name, counters) >= limit for name, limit in zip(names, limits, strict=True))
        return spent or (phase.until is not None and is_reached(phase.until, metrics))


def is_reached(until: Until, metrics: Mapping[str, float]) -> bool:
    """Whether the newest value of the metric lies past the bound."""
    value = metrics.get(until.metric)
    if value is None:
        return False
    if until.at_least is not None:
        return value >= until.at_least
    assert until.at_most is not None
    return value <= until.at_most


def _kind_of(hook: Hook) -> StepKind:
    return StepKind(hook.name) if hook.name in ("collect", "evaluate", "validate") else StepKind.UPDATE


def updates_per_step(hook: Hook, rows: int | None) -> float | None:
    """Updates per env step of a hook that reads so many rows at once; None where it does not go by env steps."""
    if hook.updates_per_step is not None or hook.train_ratio is None:
        return hook.updates_per_step
    if not rows:
        raise ConfigError(
            f"train_ratio means nothing for the hook '{hook.name}': it reads whatever was collected.",
            f"Write '{hook.name}: {{}}' to run it once per cycle.",
        )
    return hook.train_ratio / rows
