"""Watches a run's metrics and raises alerts, each with what to try. A rule alerts once until its metric recovers.

The monitor receives records like any sink and writes two kinds of its own. ``alerts`` depend on metrics alone, so equal
runs have equal alerts. ``machine_alerts`` are about memory and time, which differ between runs. Both kinds are
``{env_steps, updates, level, rule, message}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from reverie.config.monitor import MonitorConfig
from reverie.core.types import State
from reverie.envs.config import BATCHED
from reverie.log.recorder import Recorder
from reverie.machine.memory import size_text, total_memory
from reverie.training.monitor_rules import RULES, MetricState, Rule, Task

SLOW_ENV_SECONDS = 10.0
"""Wall time that ``slow_env`` averages over, at least. Single lines of a fast run are too short to judge."""
SHORT_STEP_SECONDS = 100e-6
"""Env steps shorter than this gain nothing from worker processes: passing the rows on takes about as long."""


class Monitor:
    """A part of the session. The state of its rules is saved, so a resumed run raises the same alerts."""

    def __init__(self, config: MonitorConfig, task: Task, recorder: Recorder) -> None:
        self.recorder = recorder
        self.rules = list(_active_rules(config, task)) if config.enabled else []
        self.states: dict[str, MetricState] = {}
        self.machine_rules = list(_active_machine_rules(config, task)) if config.enabled else []

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind == "metrics":
            for rule in self.rules:
                for metric in rule.metrics(record):
                    self._check(rule, metric, record)
        elif kind == "machine":
            for machine_rule in self.machine_rules:
                machine_rule.check(record, self.recorder)

    def write_table(self, kind: str, columns: Mapping[str, Sequence[float]]) -> None:
        """Rules read no scores."""

    def close(self) -> None: ...

    def state(self) -> State:
        return {name: state.saved() for name, state in self.states.items()}

    def load_state(self, state: State) -> None:
        self.states = {name: MetricState.from_saved(values) for name, values in state.items()}

    def _check(self, rule: Rule, metric: str, line: Mapping[str, Any]) -> None:
        state = self.states.setdefault(f"{rule.name} {metric}", MetricState())
        problem = rule.problem(float(line[metric]), line, state)
        state.streak = state.streak + 1 if problem else 0
        state.has_alerted &= state.streak > 0
        if problem and state.streak >= rule.patience and not state.has_alerted:
            state.has_alerted = True
            self.recorder.alert(rule.level, rule.name, f"{metric}: {problem}. {rule.advice}")


def _active_rules(config: MonitorConfig, task: Task) -> Iterator[Rule]:
    for rule in RULES:
        bound = getattr(config, rule.name)
        if bound is not None:
            yield rule(bound, config, task)


class MachineRule:
    """Checks the records about the machine. Its state is not saved: a resume runs on another process or machine."""

    name = ""
    advice = ""
    alerts_once = False
    """Whether a run gets at most one alert, even if the problem goes away and comes back."""

    def __init__(self, bound: float, task: Task) -> None:
        self.bound = bound
        self.has_alerted = False

    def check(self, line: Mapping[str, Any], recorder: Recorder) -> None:
        """Raise an alert if the line has a problem that the line before did not have."""
        problem = self.problem(line)
        if problem and not self.has_alerted:
            recorder.alert("warning", self.name, f"{problem}. {self.advice}", "machine_alerts")
        self.has_alerted = bool(problem) or (self.alerts_once and self.has_alerted)

    def problem(self, line: Mapping[str, Any]) -> str | None:
        """What is wrong, or None."""
        raise NotImplementedError


class HighMemory(MachineRule):
    name = "memory"
    advice = "Lower the buffer's capacity or env.num_envs before the system kills the process."

    def __init__(self, bound: float, task: Task, total: Callable[[], int | None] = total_memory) -> None:
        super().__init__(bound, task)
        self.total = total()

    def problem(self, line: Mapping[str, Any]) -> str | None:
        megabytes = line.get("memory/now_megabytes", line.get("memory/peak_megabytes", 0.0))
        used, total = megabytes * 1024**2, self.total
        if not total or used <= self.bound * total:
            return None
        return f"the process uses {size_text(used)} of the machine's {size_text(total)} of memory"


class SlowEnv(MachineRule):
    """Compares the time spent in env steps with all time since the last check."""

    name = "slow_env"
    alerts_once = True

    def __init__(self, bound: float, task: Task) -> None:
        super().__init__(bound, task)
        self.task = task
        self.before: tuple[float, float, int] | None = None

    def problem(self, line: Mapping[str, Any]) -> str | None:
        if "usage/env_seconds" not in line:
            return None
        now = (line["time"], line["usage/env_seconds"], line["env_steps"])
        self.before = self.before or now
        elapsed, env_seconds, env_steps = (new - old for new, old in zip(now, self.before, strict=True))
        if elapsed < SLOW_ENV_SECONDS:
            return None
        self.before = now
        fraction = env_seconds / elapsed
        if fraction <= self.bound:
            return None
        self.advice = _faster_envs(self.task, env_seconds / max(env_steps, 1))
        return f"{min(fraction, 1.0):.0%} of the time goes into env steps"


def _faster_envs(task: Task, step_seconds: float) -> str:
    """Advice on stepping the envs faster, by what is not done yet."""
    if task.vector == "process":
        return "The envs already run in worker processes: only a lighter env or more cores make it faster."
    if task.vector in BATCHED:
        return "The envs already step together: only a lighter env makes it faster."
    if step_seconds < SHORT_STEP_SECONDS:
        time = f"{step_seconds * 1e6:.0f} microseconds"
        return f"A step takes only {time}, too short for worker processes: only a lighter env makes it faster."
    if task.num_envs > 1:
        return "Try env.vector=process, which gives the same results, or a lighter env."
    return "Start a run with several envs (env.num_envs=8 env.vector=process), or use a lighter env."


def _active_machine_rules(config: MonitorConfig, task: Task) -> Iterator[MachineRule]:
    for rule in (HighMemory, SlowEnv):
        bound = getattr(config, rule.name)
        if bound is not None:
            yield rule(bound, task)
