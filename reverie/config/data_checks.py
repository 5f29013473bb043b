"""Whether updates find data in their buffers, and enough of them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from reverie.config.hook_checks import INTERVALS, ORCHESTRATED, Findings, has_hook, has_update
from reverie.config.schema import RunConfig
from reverie.training.phases import Hook, Phase


def check_order_of_data(config: RunConfig) -> Findings:
    """An update needs an earlier collect into its buffer, in this cycle or in an earlier phase, and enough rows of it.

    Episodes decide how many rows there will be, so they are counted from above: what is refused can never work.
    """
    findings: dict[str, tuple[str, str]] = {}
    most = {name: inf if getattr(buffer, "source", None) else 0.0 for name, buffer in config.buffers.items()}
    filling: dict[str, str] = {}
    for key, phase in in_order(config.phases):
        rows = most.get(phase.buffer, 0.0)
        needed = getattr(config.buffers.get(phase.buffer), "min_rows", 1)
        for index, hook in enumerate(phase.hooks):
            if hook.name == "collect":
                rows += hook.rows or inf
            elif hook.name not in ORCHESTRATED:
                by_then = rows + _rows_until_due(hook, config.env.num_envs)
                if not rows:
                    findings[f"{key}.hooks.{index}.{hook.name}"] = _no_data(hook, phase)
                elif by_then < needed:
                    what = (
                        f"{hook.name} of phase '{phase.name}' comes when at most {by_then:,.0f} of {needed:,} are there"
                    )
                    findings[f"buffers.{phase.buffer}.min_rows"] = what, _more_rows(filling.get(phase.buffer), needed)
        if "buffer" not in phase.keep:
            most[phase.buffer] = 0.0
        elif has_update(phase) and rows:
            most[phase.buffer] = inf  # later updates find more than the first, which is judged
        else:
            most[phase.buffer] = most.get(phase.buffer, 0.0) + _most_rows(phase, config.env.num_envs)
            if phase.duration_steps and has_hook(phase, "collect"):
                filling[phase.buffer] = key
    for key, (what, fix) in findings.items():
        yield key, what, fix


def in_order(phases: tuple[Phase, ...], prefix: str = "phases") -> Iterator[tuple[str, Phase]]:
    """Phases with their keys as they run, loops unrolled."""
    for index, phase in enumerate(phases):
        key = f"{prefix}.{index}"
        if not phase.phases:
            yield key, phase
        for _ in range(phase.repeat):
            yield from in_order(phase.phases, f"{key}.phases")


def _most_rows(phase: Phase, num_envs: int) -> float:
    """What a phase collects at most. Every env may begin an episode at every other row, which makes no env step."""
    per_cycle = sum(hook.rows or inf for hook in phase.hooks if hook.name == "collect")
    if phase.duration_cycles is not None:
        return per_cycle * phase.duration_cycles
    if phase.duration_steps is not None and per_cycle:
        return 2 * (phase.duration_steps - 1) + num_envs + per_cycle
    return inf if per_cycle else 0


def _rows_until_due(hook: Hook, num_envs: int) -> float:
    """The most rows that are collected after those of its phase's first cycle before an update is made."""
    if hook.train_ratio is not None or any(getattr(hook, name) is not None for name in INTERVALS):
        return inf
    if hook.updates_per_step is None:
        return 0
    return num_envs if hook.updates_per_step >= 1 else inf  # a first cycle may be nothing but beginnings


def _no_data(hook: Hook, phase: Phase) -> tuple[str, str]:
    what = f"{hook.name} comes before there can be data in buffer '{phase.buffer}'"
    if phase.type == "offline":
        return what, f"Name stored data: buffers.{phase.buffer}.source=DIR; reverie data export makes some."
    return what, "Put a collect hook before it, or a phase that fills the buffer before this one."


def _more_rows(filling: str | None, needed: int) -> str:
    more = f"Set {filling}.duration_steps={needed}"
    if filling is None:
        more = f"Put a phase before it that collects for duration_steps: {needed} with controller: random"
    return f"{more}, or a smaller min_rows."
