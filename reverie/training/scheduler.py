"""Decides what happens next: a pure state machine over phases and counters. It knows neither algorithms nor envs.

``next`` returns the step that is due. The orchestrator carries it out and reports back with ``finish``. The scheduler
advances by what was *done* (the counters), never by what was requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from reverie.config.hook_checks import updates_per_step
from reverie.config.phases import Hook, Phase, Until, flatten_phases
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.types import State
from reverie.training.hook_progress import HookProgress, Pace, hook_keys, interval_of


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


class Scheduler:
    """Walks through the phases. ``update_rows`` holds, by hook, the rows that one update replays."""

    def __init__(self, phases: tuple[Phase, ...], update_rows: Mapping[str, int | None], warmup_steps: int = 0) -> None:
        self.phases = tuple(flatten_phases(phases))
        self.update_rows = update_rows
        self.warmup_steps = warmup_steps
        self.index = 0
        self.entered = False
        self.hook = 0
        self.between_cycles = False
        self.start = {"env_steps": 0, "updates": 0, "cycles": 0}
        self.progress: dict[str, HookProgress] = {}
        """By hook key, in the order of the hooks."""
        self._is_loaded = False
        self._lacks_paces = False

    @property
    def phase(self) -> Phase | None:
        return self.phases[self.index] if self.index < len(self.phases) else None

    @property
    def current(self) -> HookProgress:
        """Progress of the hook that is due."""
        return list(self.progress.values())[self.hook]

    def next(self, counters: Counters, metrics: Mapping[str, float]) -> Step | None:
        """The step that is due. None when all phases are over. ``metrics`` holds the newest values."""
        if self.between_cycles and self._is_over(counters, metrics):
            if self.index == len(self.phases) - 1:
                return None  # and stay here: a resume with a longer budget continues the last phase
            self.index += 1
            self.entered = False
            self.between_cycles = False
        phase = self.phase
        if phase is None:
            return None
        if not self.entered:
            return Step(StepKind.ENTER, phase)
        if self._is_loaded:
            self._match_hooks(phase, counters)
        progress = list(self.progress.values())
        while self.hook < len(phase.hooks):
            hook = phase.hooks[self.hook]
            if self._is_due(hook, progress[self.hook], counters):
                return Step(_kind_of(hook), phase, hook)
            self.hook += 1
        self._check_idle(phase)
        return Step(StepKind.END_CYCLE, phase)

    def finish(self, step: Step, counters: Counters, updates: int = 0, epoch_calls: int = 0) -> None:
        """The step is done. An update hook made ``updates`` updates, and its epochs need ``epoch_calls`` calls."""
        if step.kind is StepKind.ENTER:
            self._enter(step.phase, counters)
        elif step.kind is StepKind.END_CYCLE:
            self._end_cycle()
        else:
            self.between_cycles = False
            self.current.count(updates, counters, epoch_calls)

    def state(self) -> State:
        return {
            "index": self.index,
            "entered": self.entered,
            "hook": self.hook,
            "between_cycles": self.between_cycles,
            "start": dict(self.start),
            "progress": {key: progress.state() for key, progress in self.progress.items()},
        }

    def load_state(self, state: State) -> None:
        self.index, self.entered, self.hook = state["index"], state["entered"], state["hook"]
        self.between_cycles = state["between_cycles"]
        self.start = dict(state["start"])
        self._is_loaded = True
        self._lacks_paces = "0" in state["progress"]
        if self._lacks_paces:
            self.progress = self._read_positions(state["progress"])
        else:
            self.progress = {key: HookProgress(**values) for key, values in state["progress"].items()}

    def forget_positions(self) -> None:
        """Count all hooks from now on: settings have changed since an older checkpoint that does not contain them."""
        if self._lacks_paces:
            self.progress = {}

    def _read_positions(self, saved: Mapping[str, Mapping[str, int]]) -> dict[str, HookProgress]:
        """Read an older checkpoint, which numbers the hooks and lacks their paces. They are taken as unchanged."""
        keys = hook_keys(self.phase.hooks) if self.phase else []
        if len(keys) != len(saved):
            return {}
        return {
            key: HookProgress(
                ran=bool(saved[number]["ran"]), cycle_updates=saved[number]["cycle_updates"],
                rate_updates=saved[number]["phase_updates"], intervals=saved[number]["intervals"],
            )
            for number, key in ((str(index), key) for index, key in enumerate(keys))
        }  # fmt: skip

    def _match_hooks(self, phase: Phase, counters: Counters) -> None:
        """After a load: match hooks with saved progress by name. New or changed hooks count from now on."""
        saved, self.progress = self.progress, {}
        for key, hook in zip(hook_keys(phase.hooks), phase.hooks, strict=True):
            known, pace = saved.get(key), self._pace(hook)
            if known is None:
                known = HookProgress.starting_at(pace, counters)
            elif self._lacks_paces:
                begun = HookProgress.starting_at(pace, Counters.saved_in(self.start))
                done = {name: getattr(known, name) for name in ("ran", "cycle_updates", "rate_updates", "intervals")}
                known = replace(begun, **done)
            else:
                known.change_pace(pace, counters)
            self.progress[key] = known
        if list(saved) != list(self.progress):
            self.hook = 0  # hooks that already ran in this cycle are skipped
        self._is_loaded = self._lacks_paces = False

    def _enter(self, phase: Phase, counters: Counters) -> None:
        self.entered = True
        self.start = {key: getattr(counters, key) for key in self.start}
        paces = map(self._pace, phase.hooks)
        self.progress = {
            key: HookProgress.starting_at(pace, counters)
            for key, pace in zip(hook_keys(phase.hooks), paces, strict=True)
        }
        self.hook = 0
        self._is_loaded = self._lacks_paces = False

    def _is_due(self, hook: Hook, progress: HookProgress, counters: Counters) -> bool:
        kind = _kind_of(hook)
        if not progress.ran and progress.waits(counters):
            return False
        if kind is StepKind.UPDATE and hook.updates is not None:
            return progress.cycle_updates < hook.updates
        if kind is StepKind.UPDATE and hook.epochs is not None:
            return not progress.ran or progress.cycle_calls < progress.epoch_calls
        if kind is StepKind.UPDATE and progress.rate:
            return progress.owed(counters) > 0
        if progress.ran:
            return False
        return kind is not StepKind.EVALUATE or not self._warms_up(counters)

    def _warms_up(self, counters: Counters) -> bool:
        """Whether it is too early to evaluate. Never in a phase that does not collect: it would wait for ever."""
        phase = self.phase
        can_wait = phase is not None and any(hook.name == "collect" for hook in phase.hooks)
        return can_wait and counters.env_steps < self.warmup_steps

    def _check_idle(self, phase: Phase) -> None:
        """Refuse to loop for ever, when every hook waits for env steps or updates that no hook makes."""
        working = [key for key, hook in zip(self.progress, phase.hooks, strict=True) if _makes_something(hook)]
        can_change = phase.duration_cycles or any(hook.every_cycles for hook in phase.hooks)
        if can_change or any(self.progress[key].ran for key in working):
            return
        raise ConfigError(
            f"The phase '{phase.name}' would never end: its hooks wait for each other, so a whole cycle passed without "
            "a collect or an update.",
            "Run a collect or an update in every cycle: remove its every_steps, every_updates, train_ratio or "
            "updates_per_step.",
        )

    def _pace(self, hook: Hook) -> Pace:
        rate = None
        if _kind_of(hook) is StepKind.UPDATE and hook.updates is None:
            rate = updates_per_step(hook, self.update_rows.get(hook.name))
        return Pace(rate or 0.0, *interval_of(hook))

    def _since(self, name: str, counters: Counters) -> int:
        return int(getattr(counters, name)) - self.start[name]

    def _end_cycle(self) -> None:
        self.hook = 0
        self.between_cycles = True
        for progress in self.progress.values():
            progress.end_cycle()

    def _is_over(self, counters: Counters, metrics: Mapping[str, float]) -> bool:
        phase = self.phase
        if phase is None:
            return False
        limits = (phase.duration_steps, phase.duration_updates, phase.duration_cycles)
        names = ("env_steps", "updates", "cycles")
        spent = any(limit and self._since(name, counters) >= limit for name, limit in zip(names, limits, strict=True))
        return spent or (phase.until is not None and is_reached(phase.until, metrics))


def is_reached(until: Until, metrics: Mapping[str, float]) -> bool:
    """Whether the newest value of the metric has reached the bound."""
    value = metrics.get(until.metric)
    if value is None:
        return False
    if until.at_least is not None:
        return value >= until.at_least
    assert until.at_most is not None
    return value <= until.at_most


def _kind_of(hook: Hook) -> StepKind:
    return StepKind(hook.name) if hook.name in ("collect", "evaluate", "validate") else StepKind.UPDATE


def _makes_something(hook: Hook) -> bool:
    """Whether the hook advances a counter that other hooks may wait for."""
    return _kind_of(hook) in (StepKind.COLLECT, StepKind.UPDATE)
