"""Check a hook's amounts and intervals."""

from __future__ import annotations

from collections.abc import Iterator

from reverie.config.path_names import hook_keys
from reverie.config.phases import Hook, Phase
from reverie.core.errors import ConfigError, nearest

Findings = Iterator[tuple[str, str, str]]
"""Dotted key, problem, fix."""

ORCHESTRATED = ("collect", "evaluate", "validate")
INTERVALS = ("every_steps", "every_updates", "every_cycles")
WAITS = {"every_steps": "env steps", "every_updates": "updates"}
"""Settings that wait for a counter, and the counter: some hook must advance it."""
AMOUNTS = {"collect": ("rows", "episodes"), "evaluate": ("episodes",), "validate": ("batches",)}
UPDATE_AMOUNTS = ("updates", "train_ratio", "updates_per_step", "epochs")


def check_hook(key: str, hook: Hook, offered: tuple[str, ...], num_envs: int) -> Findings:
    """Check that the hook exists (``offered`` are the algorithm's) and has one amount, in a unit that it takes."""
    if hook.name not in (*ORCHESTRATED, *offered):
        fix = nearest(hook.name, (*ORCHESTRATED, *offered))
        yield key, f"the algorithm has no hook '{hook.name}'", fix
        return
    yield from _check_buffer_keys(key, hook)
    allowed = AMOUNTS.get(hook.name, UPDATE_AMOUNTS)
    given = [name for name in ("rows", "episodes", "batches", *UPDATE_AMOUNTS) if getattr(hook, name) is not None]
    for name in given:
        if name not in allowed:
            yield (
                f"{key}.{name}",
                f"{hook.name} is not counted in {name}",
                f"It takes {' or '.join(allowed)}.",
            )
    chosen = [name for name in given if name in allowed]
    if len(chosen) > 1:
        yield key, f"{' and '.join(chosen)} cannot both hold", "Keep one of them."
    elif not chosen and hook.name in AMOUNTS:
        fix = f"Add {' or '.join(f'{name}: ...' for name in allowed)}."
        yield key, f"{hook.name} needs an amount", fix
    elif chosen and hook.name == "collect":
        yield from _check_multiple(f"{key}.{chosen[0]}", getattr(hook, chosen[0]), num_envs)


def _check_buffer_keys(key: str, hook: Hook) -> Findings:
    if hook.into is not None and hook.name != "collect":
        yield f"{key}.into", f"{hook.name} fills no buffers", "Write buffer: NAME for the buffer that it reads."
    if hook.buffer is not None and hook.name in ORCHESTRATED:
        fix = "Write into: [NAME]." if hook.name == "collect" else "Set the buffer of the phase."
        yield f"{key}.buffer", f"{hook.name} does not read a buffer of its own", fix


def check_interval(key: str, hook: Hook, phase: Phase) -> Findings:
    """Check that the hook has one interval, and that some hook of the phase advances its counter."""
    given = [name for name in INTERVALS if getattr(hook, name) is not None]
    if len(given) > 1:
        yield f"{key}.{given[1]}", f"{' and '.join(given)} cannot both hold", "Keep one of them."
    elif given == ["every_steps"] and not has_hook(phase, "collect"):
        fix = "Use every_updates or every_cycles."
        yield f"{key}.every_steps", "no hook of this phase makes env steps", fix
    elif given == ["every_updates"] and not has_update(phase):
        fix = "Use every_steps or every_cycles."
        yield f"{key}.every_updates", "no hook of this phase makes updates", fix


def check_waits(key: str, phase: Phase) -> Findings:
    """Check that no hook waits for something that only comes after it."""
    made: set[str] = set()
    while new := {_makes(hook) for hook in phase.hooks if _needs(hook) <= made} - made:
        made |= new
    for where, hook in zip(hook_keys(key, phase), phase.hooks, strict=True):
        rate = next((name for name in ("train_ratio", "updates_per_step") if getattr(hook, name) is not None), "")
        if rate and not has_hook(phase, "collect"):
            what = f"no hook of this phase makes env steps, so {hook.name} would never run"
            yield f"{where}.{rate}", what, f"Write updates: 1 instead of {rate}."
        for setting, unit in WAITS.items():
            is_made_later = unit not in made and unit in map(_makes, phase.hooks)
            if getattr(hook, setting) is not None and _makes(hook) and is_made_later:
                what = f"{hook.name} waits for {unit} that only come after it, so it would never run"
                yield f"{where}.{setting}", what, f"Remove {setting}, or use every_cycles."


def _makes(hook: Hook) -> str:
    """Counters that a hook advances."""
    return {"collect": "env steps", "evaluate": "", "validate": ""}.get(hook.name, "updates")


def _needs(hook: Hook) -> set[str]:
    """Counters that must advance before the hook runs."""
    needs = {unit for setting, unit in WAITS.items() if getattr(hook, setting) is not None}
    return needs | ({"env steps"} if hook.train_ratio or hook.updates_per_step else set())


def has_hook(phase: Phase, name: str) -> bool:
    return any(hook.name == name for hook in phase.hooks)


def has_update(phase: Phase) -> bool:
    return any(hook.name not in ORCHESTRATED for hook in phase.hooks)


def _check_multiple(key: str, amount: int, num_envs: int) -> Findings:
    if amount % num_envs:
        below = amount - amount % num_envs
        near = " or ".join(str(number) for number in (below, below + num_envs) if number)
        what = f"{amount} cannot be divided equally among {num_envs} envs"
        yield key, what, f"Write {near}, or change env.num_envs."


def updates_per_step(hook: Hook, rows: int | None) -> float | None:
    """Updates per env step of a hook that reads ``rows`` rows per update. None if it does not depend on env steps."""
    amount = "epochs" if hook.epochs is not None else "train_ratio" if hook.train_ratio is not None else ""
    if amount and not rows and hook.updates_per_step is None:
        raise ConfigError(
            f"{amount} has no meaning for the hook '{hook.name}', which reads all collected rows at once.",
            f"Write '{hook.name}: {{}}' to run it once per cycle.",
        )
    if hook.updates_per_step is not None or hook.train_ratio is None or not rows:
        return hook.updates_per_step
    return hook.train_ratio / rows
