"""The preflight summary, printed before the first step: memory, disk, speed, time and warnings."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reverie import backend
from reverie.config.schema import RunConfig
from reverie.core.specs import Specs
from reverie.core.wording import count
from reverie.machine import memory as machine
from reverie.machine.usage import resident_memory
from reverie.preflight import forecast
from reverie.preflight.probe import Measured, measure
from reverie.preflight.warnings import Facts, check_memory, find_traps
from reverie.training.session import Session

MOST_LINES = 15
WIDTH = 80


def examine_session(session: Session, runs_dir: Path, make_session: Callable[[RunConfig], Session] | None) -> Facts:
    """All facts about a session. Runs a probe if ``make_session`` is given. Does not change the session."""
    config, specs = session.config, session.policy.specs
    measured = Measured(problem="not measured") if make_session is None else measure(config, make_session)
    buffers = forecast.buffer_bytes(config, specs, measured)
    algorithm, policy = session.algorithm.state(), session.algorithm.policy_state()
    is_measured = not measured.problem
    return Facts(
        config, specs, buffers.memory, machine.free_memory(),
        disk=forecast.disk_bytes(config, algorithm, policy, buffers), free_disk=machine.free_disk(runs_dir),
        parameters=backend.count_parameters(session.algorithm),
        duration=forecast.duration(config, specs, measured) if is_measured else None, measured=measured,
        process_memory=resident_memory(),
    )  # fmt: skip


def examine_config(config: RunConfig, specs: Specs) -> Facts:
    """The facts that are known without building anything."""
    measured = Measured(problem="not measured")
    memory = forecast.buffer_bytes(config, specs, measured).memory
    return Facts(config, specs, memory, machine.free_memory(), measured=measured)


def check_start(config: RunConfig, specs: Specs) -> None:
    """Refuse buffers that do not fit into memory, before the run folder is made."""
    if config.preflight.enabled:
        check_memory(examine_config(config, specs))


def report_lines(facts: Facts) -> list[str]:
    """The summary as text, at most ``MOST_LINES`` lines."""
    settings, free = facts.config.backend, facts.free_memory
    size = machine.size_text
    parameters = "" if facts.parameters is None else f", {count(facts.parameters, 'parameter')}"
    table = {"device": f"{settings.device}, {count(settings.threads, 'thread')}{parameters}"}
    table["memory"] = f"{size(facts.memory)} for full buffers" + (f", {size(free)} free" if free is not None else "")
    if facts.process_memory is not None:
        table["memory"] += f"; this process has {size(facts.process_memory)} now"
    if facts.disk is not None and facts.free_disk is not None:
        table["disk"] = f"{size(facts.disk)} for checkpoints and policies, {size(facts.free_disk)} free"
    table |= _speed_rows(facts)
    lines = [f"  {name:<8}{text}" for name, text in table.items()]
    for trap in find_traps(facts):
        lines += textwrap.wrap(trap, WIDTH, initial_indent="  ! ", subsequent_indent="    ", break_on_hyphens=False)
    return lines[:MOST_LINES]


def to_json(facts: Facts) -> dict[str, Any]:
    """The summary as JSON."""
    return {"buffer_bytes": facts.memory, "free_memory_bytes": facts.free_memory, "traps": find_traps(facts)}


def _speed_rows(facts: Facts) -> dict[str, str]:
    measured, duration = facts.measured, facts.duration
    if duration is None or not duration.env_steps:
        return (
            {}
            if measured.problem == "not measured"
            else {"speed": f"unknown: {measured.problem or 'no update was tried'}"}
        )
    evaluation = f", and at most {_time_text(duration.evaluation)} of evaluations" if duration.evaluation >= 1 else ""
    return {
        "speed": f"about {duration.steps_per_second:,.0f} env steps per second (measured for {measured.seconds:.1f} s)",
        "time": f"about {_time_text(duration.training)} of training{evaluation}",
    }


def _time_text(seconds: float) -> str:
    """A duration as text: 1 h 20 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"
