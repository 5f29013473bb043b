"""Check that updates find enough data in their buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf

from reverie.config.hook_checks import INTERVALS, Findings, has_hook, has_update
from reverie.config.path_names import hook_keys, phase_keys
from reverie.config.phases import Hook, Phase
from reverie.config.schema import RunConfig
from reverie.config.tree import Path
from reverie.core.traits import algorithm_traits


def check_order_of_data(config: RunConfig, update_rows: Mapping[str, int | None] | None = None) -> Findings:
    """An update needs an earlier collect into its buffer, in this cycle or in an earlier phase, that adds enough rows.

    Counts are lower bounds, so a config that passes works. If they depend on the length of episodes, anything passes.
    ``update_rows`` are the rows that each hook replays. They are known once the algorithm is built.
    """
    findings: dict[str, tuple[str, str]] = {}
    least = {name: inf if getattr(buffer, "source", None) else 0.0 for name, buffer in config.buffers.items()}
    filling: dict[str, str] = {}
    offered = algorithm_traits(config.algorithm.kind).hooks
    for key, phase in by_buffer(config.phases):
        if phase.buffer not in config.buffers:
            continue
        before = least[phase.buffer]
        needed = getattr(config.buffers[phase.buffer], "min_rows", 1)
        keys = hook_keys(key, phase)
        for index, hook in enumerate(phase.hooks):
            if hook.name not in offered:
                continue
            by_then = before + _rows_at_first_run(phase, index, (update_rows or {}).get(hook.name))
            if not before and not any(other.name == "collect" for other in phase.hooks[:index]):
                findings[keys[index]] = _no_data(hook, phase)
            elif by_then < needed:
                what = f"{hook.name} of phase '{phase.name}' runs when only {by_then:,.0f} rows are sure to be stored"
                fix = _more_rows(filling.get(phase.buffer), phase.buffer, needed, int(by_then))
                findings[f"buffers.{phase.buffer}.min_rows"] = f"{what}, of {needed:,}", fix
        if "buffer" not in phase.keep:
            least[phase.buffer] = 0.0
        elif has_update(phase) and (before or has_hook(phase, "collect")):
            least[phase.buffer] = inf  # only the first update is checked: later ones find more
        else:
            least[phase.buffer] = before + _rows_of(phase)
            if phase.duration_steps and has_hook(phase, "collect"):
                filling[phase.buffer] = key
    for key, (what, fix) in findings.items():
        yield key, what, fix


def in_order(phases: tuple[Phase, ...]) -> Iterator[tuple[str, Phase]]:
    """Phases with their keys as they run, loops unrolled."""
    keys = phase_keys(phases)

    def unroll(inner: tuple[Phase, ...], above: Path) -> Iterator[tuple[str, Phase]]:
        for index, phase in enumerate(inner):
            address = (*above, str(index))
            if not phase.phases:
                yield keys[address], phase
            for _ in range(phase.repeat):
                yield from unroll(phase.phases, (*address, "phases"))

    return unroll(phases, ("phases",))


def by_buffer(phases: tuple[Phase, ...]) -> Iterator[tuple[str, Phase]]:
    """Like ``in_order``, but once per buffer of a phase. Hooks that use another buffer are replaced by ``evaluate``."""
    for key, phase in in_order(phases):
        for name in phase.buffers():
            hooks = (hook if _uses(phase, hook, name) else Hook(name="evaluate") for hook in phase.hooks)
            yield key, phase.model_copy(update={"buffer": name, "hooks": tuple(hooks)})


def _uses(phase: Phase, hook: Hook, buffer: str) -> bool:
    return buffer in phase.filled_by(hook) if hook.name == "collect" else buffer == phase.read_by(hook)


def _rows_of(phase: Phase) -> float:
    """Fewest rows that a phase collects: its env steps and the first rows of episodes."""
    per_cycle = _rows_per_cycle(phase.hooks)
    if per_cycle == inf or phase.duration_cycles is not None:
        return per_cycle * (phase.duration_cycles or 1)
    steps = phase.duration_steps or 0
    return ceil(steps / per_cycle) * per_cycle if per_cycle else steps


def _rows_per_cycle(hooks: Sequence[Hook]) -> float:
    """Rows that every cycle collects. Infinite if it counts episodes."""
    collects = [hook for hook in hooks if hook.name == "collect"]
    return sum(hook.rows or inf for hook in collects if not hook.rows or not _waits(hook))


def _waits(hook: Hook) -> bool:
    return any(getattr(hook, name) is not None for name in INTERVALS)


def _rows_at_first_run(phase: Phase, index: int, rows: int | None) -> float:
    """Fewest rows that the phase has collected when its first update runs. Infinite if unknown."""
    hook, per_cycle = phase.hooks[index], _rows_per_cycle(phase.hooks)
    may_wait_for_collect = hook.every_cycles and any(map(_waits, (h for h in phase.hooks if h.name == "collect")))
    if per_cycle == inf or hook.every_updates or may_wait_for_collect or (hook.train_ratio and not rows):
        return inf
    rate = hook.train_ratio / rows if hook.train_ratio and rows else hook.updates_per_step
    steps = max(hook.every_steps or 0, ceil(1 / rate) if rate else 0)
    cycles = max(hook.every_cycles or 1, ceil(steps / per_cycle) if per_cycle else 1)
    return max(steps, (cycles - 1) * per_cycle + _rows_per_cycle(phase.hooks[:index]))


def _no_data(hook: Hook, phase: Phase) -> tuple[str, str]:
    what = f"{hook.name} runs before there can be data in buffer '{phase.buffer}'"
    if phase.type == "offline":
        return what, f"Name stored data: buffers.{phase.buffer}.source=DIR; reverie data export makes some."
    return what, "Add a collect hook before it, or an earlier phase that fills the buffer."


def _more_rows(filling: str | None, buffer: str, needed: int, sure: int) -> str:
    more = f"Set {filling}.duration_steps={needed}"
    if filling is None:
        more = f"Add a phase before it that collects for duration_steps: {needed} with controller: random"
    return f"{more}, or buffers.{buffer}.min_rows={max(1, sure)}."
