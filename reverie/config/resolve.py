"""Fill in numbers that follow from the rest of a config: horizon, schedules, intervals, frame stacks, budgets.

They are decided once, when a run is created, and written into its config.yaml. What needs the machine or the env is
decided in :mod:`reverie.config.decide`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from reverie.config.fields import fill_defaults
from reverie.config.hook_checks import has_hook, has_update
from reverie.config.path_names import PathNames
from reverie.config.phases import Phase, flatten_phases
from reverie.config.schema import RunConfig
from reverie.config.tree import Tree, leaves, put
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.contracts import KeepsObservations
from reverie.core.counters import Budget
from reverie.core.errors import ConfigError
from reverie.core.schedule import LINEAR, expand_linear

LOG_LINES = 200
"""Default number of metrics lines per run."""
NOTABLE = 1.1
"""How far beyond its budget a run must go, as a factor, before the user is informed."""
CHECKPOINTS = 20
"""Default number of checkpoints per run."""


def resolve_numbers(tree: Tree, sources: Mapping[str, str] | None = None) -> Tree:
    """The tree with horizon, schedules, annealing, intervals and frame stacks filled in."""
    config = load_config(tree, sources)  # from here on the values have the right shapes
    tree = copy.deepcopy(fill_defaults(tree))
    budget = step_budget(config.phases)
    tree["horizon_steps"] = config.horizon_steps or budget
    _expand_schedules(tree, config.phases)
    _settle_annealing(tree)
    tree["log"]["every_steps"] = config.log.every_steps or round_up(max(1, budget // LOG_LINES))
    _settle_checkpoints(tree["checkpoint"], config)
    for buffer in tree["buffers"].values():
        if "stacked_frames" in buffer and buffer["stacked_frames"] is None:
            buffer["stacked_frames"] = _frames_of_stacks(config)
    return tree


def _settle_checkpoints(tree: Tree, config: RunConfig) -> None:
    """Spread checkpoints over each kind of budget. Otherwise phases without env steps would never be saved."""
    given, phases = config.checkpoint, config.phases
    if not (given.every_steps or given.every_updates or given.every_cycles):
        tree["every_cycles"] = _share(cycle_budget(phases))
    tree["every_steps"] = given.every_steps or _share(step_budget(phases))
    tree["every_updates"] = given.every_updates or _share(update_budget(phases))


def _share(budget: int) -> int:
    return round_up(max(1, budget // CHECKPOINTS)) if budget else 0


def _frames_of_stacks(config: RunConfig) -> int:
    """Stacked frames that observations in a buffer certainly have. Normalised observations have no stacks."""
    kinds = {wrapper.kind for wrapper in config.env.wrappers}
    wrappers = {kind: registry.load("wrapper", kind) for kind in kinds}
    keeping = {k for k, found in wrappers.items() if isinstance(found, KeepsObservations) and found.keeps_observations}
    last = next((wrapper for wrapper in reversed(config.env.wrappers) if wrapper.kind not in keeping), None)
    is_stack = last is not None and last.kind == "frame_stack" and config.normaliser.observation == "off"
    return int(getattr(last, "frames", 1)) if is_stack else 1


def step_budget(phases: tuple[Phase, ...]) -> int:
    """Env steps in the budgets of the phases, loops unrolled."""
    return sum(phase.duration_steps or 0 for phase in flatten_phases(phases))


def update_budget(phases: tuple[Phase, ...]) -> int:
    """Updates of phases that are counted in them, loops unrolled."""
    return sum(phase.duration_updates or 0 for phase in flatten_phases(phases))


def cycle_budget(phases: tuple[Phase, ...]) -> int:
    """Cycles of phases that are counted in them, loops unrolled."""
    return sum(phase.duration_cycles or 0 for phase in flatten_phases(phases))


def whole_cycle_steps(phases: tuple[Phase, ...]) -> int:
    """Approximate env steps that the phases really take: cycles always finish, and most rows are env steps."""
    return sum(_whole_cycles(phase) for phase in flatten_phases(phases))


def _whole_cycles(phase: Phase) -> int:
    steps = phase.duration_steps or 0
    rows = sum(hook.rows or 0 for hook in phase.hooks if hook.name == "collect")
    return -(-steps // rows) * rows if rows else steps


def exceeds_budget(phases: tuple[Phase, ...]) -> bool:
    """Whether whole cycles take notably more env steps than the budgets of the phases."""
    return whole_cycle_steps(phases) > NOTABLE * step_budget(phases)


def steps_text(phases: tuple[Phase, ...]) -> str:
    """The run's env steps as text, with the real total if cycles exceed the budget. Empty without a budget."""
    asked, real = step_budget(phases), whole_cycle_steps(phases)
    if not exceeds_budget(phases):
        return Budget().amount(asked) if asked else ""
    return f"about {Budget().amount(real)} ({asked:,} rounded up to whole cycles)"


def budget_of(phases: tuple[Phase, ...]) -> Budget:
    """The budget in env steps, or in updates if the run learns only from stored data."""
    is_offline = not any(has_hook(phase, "collect") for phase in flatten_phases(phases))
    updates = update_budget(phases)
    return Budget("updates", updates) if is_offline and updates else Budget("env_steps", step_budget(phases))


def set_budget(tree: Tree, steps: int, sources: Mapping[str, str] | None = None) -> Tree:
    """The tree with phases that last ``steps`` env steps in all.

    The last phase counted in steps gets what the earlier ones leave, more or less than before. If nothing is left,
    later phases are dropped. A loop is unrolled only if the budget ends inside it.
    """
    if steps < 1:
        raise ConfigError(f"A run of {steps} env steps is not possible.", "Give at least 1.")
    load_config(tree, sources)
    tree = copy.deepcopy(fill_defaults(tree))
    if not any(_steps_of(phase) for phase in tree["phases"]):
        raise ConfigError(
            "The phases are counted in updates or cycles, so a budget of env steps does not apply.",
            f"Set {PathNames(tree).shown(('phases', '0'))}.duration_updates=... or .duration_cycles=... instead.",
        )
    tree["phases"] = _spend(tree["phases"], steps)
    return tree


def round_up(number: int) -> int:
    """The next number of the form 1, 2 or 5 times a power of ten."""
    scale = int(10 ** (len(str(number)) - 1))
    return next(step for step in (scale, 2 * scale, 5 * scale, 10 * scale) if step >= number)


def _spend(phases: list[Tree], steps: int) -> list[Tree]:
    last = max(index for index, phase in enumerate(phases) if _steps_of(phase))
    for index, phase in enumerate(phases[:last]):
        if _steps_of(phase) >= steps:
            return [*phases[:index], *_with_steps(phase, steps)]
        steps -= _steps_of(phase)
    return [*phases[:last], *_with_steps(phases[last], steps), *phases[last + 1 :]]


def _with_steps(phase: Tree, steps: int) -> list[Tree]:
    if _steps_of(phase) == steps:
        return [phase]
    if not phase.get("phases"):
        return [{**phase, "duration_steps": steps}]
    return _spend([copy.deepcopy(inner) for _ in range(phase["repeat"]) for inner in phase["phases"]], steps)


def _steps_of(phase: Tree) -> int:
    if phase.get("phases"):
        return int(phase["repeat"]) * sum(_steps_of(inner) for inner in phase["phases"])
    return int(phase.get("duration_steps") or 0)


def _expand_schedules(tree: Tree, phases: tuple[Phase, ...]) -> None:
    """Expand ``lin_x`` with the run's horizon. Arguments of envs stay as they are."""
    flat = list(flatten_phases(phases))
    learns, collects = any(map(has_update, flat)), any(has_hook(phase, "collect") for phase in flat)
    horizon = tree["horizon_steps"] if learns or collects else 1  # only evaluates: schedules stay at their start
    unit = "steps"
    if learns and not collects:  # an offline run makes no env steps: its schedules run over updates
        horizon, unit = budget_of(phases).total, "updates"
    for path, value in list(leaves(tree)):
        if path[0] == "env" or not isinstance(value, str) or not LINEAR.match(value):
            continue
        if not horizon and unit == "updates":
            raise _no_updates(PathNames(tree).shown(path), value)
        if not horizon:
            raise _no_horizon(PathNames(tree).shown(path), value)
        put(tree, path, expand_linear(value, horizon, unit))


def _settle_annealing(tree: Tree) -> None:
    """Let prioritised samplers reach ``beta_end`` at the run's last env step, unless they are set to another one.

    In runs without env steps they start there, because their buffers do not grow.
    """
    for path, value in list(leaves(tree["buffers"], ("buffers",))):
        if path[-1] == "beta_rows" and value is None:
            put(tree, path, max(1, tree["horizon_steps"]))


def _no_updates(key: str, value: str) -> ConfigError:
    return ConfigError(
        f"{key} = {value} falls over the run's updates, but no phase says how many there are.",
        f"Give a phase duration_updates, or write a constant: {key}={value.removeprefix('lin_')}",
    )


def _no_horizon(key: str, value: Any) -> ConfigError:
    return ConfigError(
        f"{key} = {value} falls over the run's env steps, but no phase has a budget of those.",
        "Set horizon_steps=..., or write the schedule as {start, end, from, to}.",
    )
