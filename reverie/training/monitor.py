"""Watches a run and says what looks wrong, once until it is well again, each time with what to try.

The monitor reads the recorder's lines, like any sink, and writes records of two kinds: ``alerts`` follow from metrics
alone, so that equal runs have equal alerts; ``machine_alerts`` tell of memory and time, which differ from run to run
and are kept apart. Both are ``{env_steps, updates, level, rule, message}``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reverie.config.monitor import MonitorConfig
from reverie.core.types import State
from reverie.log.recorder import Recorder
from reverie.machine.memory import size_text, total_memory
from reverie.training.monitor_rules import RULES, Rule, Task, Watch


class Monitor:
    """A part of the session: what its rules remember is saved, so a resumed run gives the same alerts."""

    def __init__(self, config: MonitorConfig, task: Task, recorder: Recorder) -> None:
        self.recorder = recorder
        self.rules = list(_active_rules(config, task)) if config.enabled else []
        self.watches: dict[str, Watch] = {}
        self.machine_rules = list(_active_machine_rules(config, task)) if config.enabled else []

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """A line of the recorder's."""
        if kind == "metrics":
            for rule in self.rules:
                for metric in rule.metrics(record):
                    self._judge(rule, metric, record)
        elif kind == "machine":
            for machine_rule in self.machine_rules:
                machine_rule.judge(record, self.recorder)

    def close(self) -> None:
        """Nothing is held open."""

    def state(self) -> State:
        return {name: dataclasses.asdict(watch) for name, watch in self.watches.items()}

    def load_state(self, state: State) -> None:
        self.watches = {name: Watch(**values) for name, values in state.items()}

    def _judge(self, rule: Rule, metric: str, line: Mapping[str, Any]) -> None:
        watch = self.watches.setdefault(f"{rule.name} {metric}", Watch())
        complaint = rule.complaint(float(line[metric]), line, watch)
        watch.streak = watch.streak + 1 if complaint else 0
        watch.is_told &= watch.streak > 0
        if complaint and watch.streak >= rule.patience and not watch.is_told:
            watch.is_told = True
            self.recorder.alert(rule.level, rule.name, f"{metric}: {complaint}. {rule.advice}")


def _active_rules(config: MonitorConfig, task: Task) -> Iterator[Rule]:
    for rule in RULES:
        bound = getattr(config, rule.name)
        if bound is not None:
            yield rule(bound, config, task)


class MachineRule:
    """Judges the machine's lines; what it remembers is not saved, since nothing of it comes again."""

    name = ""
    advice = ""

    def __init__(self, bound: float, task: Task) -> None:
        self.bound = bound
        self.is_told = False

    def judge(self, line: Mapping[str, Any], recorder: Recorder) -> None:
        complaint = self.complaint(line)
        if complaint and not self.is_told:
            recorder.alert("warning", self.name, f"{complaint}. {self.advice}", "machine_alerts")
        self.is_told = bool(complaint)

    def complaint(self, line: Mapping[str, Any]) -> str | None:
        raise NotImplementedError


class HighMemory(MachineRule):
    name = "memory"
    advice = "Lower the buffer's capacity or env.num_envs before the system ends the process."

    def __init__(self, bound: float, task: Task, total: Callable[[], int | None] = total_memory) -> None:
        super().__init__(bound, task)
        self.total = total()

    def complaint(self, line: Mapping[str, Any]) -> str | None:
        megabytes = line.get("memory/now_megabytes", line.get("memory/peak_megabytes", 0.0))
        held, total = megabytes * 1024**2, self.total
        if not total or held <= self.bound * total:
            return None
        return f"the process holds {size_text(held)} of the machine's {size_text(total)}"


class SlowEnv(MachineRule):
    """Env seconds against seconds, between two lines; the first one after a start has nothing to compare with."""

    name = "slow_env"

    def __init__(self, bound: float, task: Task) -> None:
        super().__init__(bound, task)
        self.advice = _faster_envs(task)
        self.before: tuple[float, float] | None = None

    def complaint(self, line: Mapping[str, Any]) -> str | None:
        if "usage/env_seconds" not in line:
            return None
        now = (line["time"], line["usage/env_seconds"])
        (time, seconds), self.before = self.before or now, now
        share = (now[1] - seconds) / max(now[0] - time, 1e-9)
        return f"{min(share, 1.0):.0%} of the time passes in env steps" if share > self.bound else None


def _faster_envs(task: Task) -> str:
    """What may still be changed to step the envs faster."""
    if task.vector == "process":
        return "The envs already run in worker processes: only a lighter env or more cores make it faster."
    if task.vector == "native":
        return "The envs already step together in their own vector class: only a lighter env makes it faster."
    if task.num_envs > 1:
        return "Try env.vector=process, which gives the same results; a lighter env helps, too."
    return "Start a run with several envs, env.num_envs=8 env.vector=process; a lighter env helps, too."


def _active_machine_rules(config: MonitorConfig, task: Task) -> Iterator[MachineRule]:
    for rule in (HighMemory, SlowEnv):
        bound = getattr(config, rule.name)
        if bound is not None:
            yield rule(bound, task)
