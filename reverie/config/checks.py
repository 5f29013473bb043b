"""Check that the parts of a config fit together. Each problem names its fix.

These checks run before anything is built: a curriculum that cannot work fails in the first second, not after the
first phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reverie.config.data_checks import by_buffer, check_order_of_data
from reverie.config.fields import networks_of
from reverie.config.hook_checks import Findings, check_hook, check_interval, check_waits, has_hook, has_update
from reverie.config.overrides import phase_config, refusal
from reverie.config.path_names import hook_keys, phases_by_key
from reverie.config.phases import Hook, Phase
from reverie.config.schema import RunConfig
from reverie.config.tree import leaves
from reverie.config.validate import Problem, ProblemsError, source_of
from reverie.core import registry
from reverie.core.contracts import HasHeldOutLoss
from reverie.core.errors import ConfigError, nearest
from reverie.core.traits import algorithm_traits, algorithms_with, is_recurrent
from reverie.core.wording import count

DURATIONS = ("duration_steps", "duration_updates", "duration_cycles")
KEPT = ("algorithm", "buffer", "normaliser", "episodes")


def check_config(config: RunConfig, sources: Mapping[str, str] | None = None) -> None:
    """Raise one ConfigError that lists everything that does not fit together."""
    raise_findings(find_misfits(config), sources)


def find_misfits(config: RunConfig) -> Findings:
    """Everything that does not fit together."""
    checks = (
        _check_phases, check_order_of_data, _check_own_actions, _check_early_stop, _check_priorities, _check_recurrent,
        _check_holdout, _check_freeze, _check_precision,
    )  # fmt: skip
    for check in checks:
        yield from check(config)


def find_shared_names(config: RunConfig) -> Findings:
    """Overrides, metrics and reports identify phases by name, so names must be unique."""
    first: dict[str, str] = {}
    for place in _places(config.phases):
        name = place.phase.name
        if name in first:
            what = f"the phase {first[name]} is called '{name}', too"
            yield f"{place.key}.name", what, f"Write another name, for example {_free_name(name, config)}."
        first.setdefault(name, place.key)


def _free_name(name: str, config: RunConfig) -> str:
    taken = {place.phase.name for place in _places(config.phases)}
    return next(free for number in range(2, len(taken) + 3) if (free := f"{name}_{number}") not in taken)


def raise_findings(findings: Iterable[tuple[str, str, str]], sources: Mapping[str, str] | None = None) -> None:
    """Raise one ConfigError that lists all findings, if there are any."""
    known = sources or {}
    problems = [Problem(key, "", source_of(known, key), what, fix) for key, what, fix in findings]
    if problems:
        raise ProblemsError(problems)


@dataclass(frozen=True)
class _Place:
    """A phase and its key."""

    key: str
    phase: Phase

    def hooks(self) -> list[tuple[str, Hook]]:
        return list(zip(hook_keys(self.key, self.phase), self.phase.hooks, strict=True))


def _places(phases: tuple[Phase, ...]) -> list[_Place]:
    """All phases in the order of their first run, loops before the phases in them."""
    return [_Place(key, phase) for key, phase in phases_by_key(phases)]


def _check_phases(config: RunConfig) -> Findings:
    offered = algorithm_traits(config.algorithm.kind).hooks
    for place in _places(config.phases):
        if place.phase.phases:
            yield from _check_loop(place)
            continue
        yield from _check_duration(place)
        yield from _check_type(place)
        yield from _check_names(place, config)
        yield from _check_overrides(place, config)
        yield from _check_until(place)
        yield from check_waits(place.key, place.phase)
        for key, hook in place.hooks():
            yield from check_hook(key, hook, offered, config.env.num_envs)
            yield from check_interval(key, hook, place.phase)


def _check_loop(place: _Place) -> Findings:
    """A loop only repeats. All other settings belong to its inner phases."""
    for name, field in Phase.model_fields.items():
        if name in ("name", "repeat", "phases"):
            continue
        if getattr(place.phase, name) != field.get_default(call_default_factory=True):
            fix = f"Move {name} into them."
            yield f"{place.key}.{name}", "a phase with inner phases only repeats them", fix


def _check_duration(place: _Place) -> Findings:
    phase, key = place.phase, place.key
    if phase.repeat > 1:
        yield f"{key}.repeat", "there is nothing to repeat", "Write the phases to repeat below 'phases:'."
    if not phase.hooks:
        yield f"{key}.hooks", "the phase does nothing", "Add hooks, for example '- collect: {rows: 64}'."
    given = [name for name in DURATIONS if getattr(phase, name) is not None]
    if not given:
        yield key, f"the phase '{phase.name}' has no duration", f"Add one of {', '.join(DURATIONS)}."
    elif len(given) > 1:
        yield f"{key}.{given[1]}", f"{' and '.join(given)} cannot both hold", "Keep one of them."
    elif given == ["duration_steps"] and not has_hook(phase, "collect"):
        fix = "Add a collect hook, or use duration_updates or duration_cycles."
        yield f"{key}.duration_steps", "no hook makes env steps, so the phase would never end", fix
    elif given == ["duration_updates"] and not has_update(phase):
        fix = "Add an update hook, or use duration_cycles."
        yield f"{key}.duration_updates", "no hook makes updates, so the phase would never end", fix


def _check_type(place: _Place) -> Findings:
    for key, hook in place.hooks():
        if place.phase.type == "offline" and hook.name == "collect":
            yield key, "an offline phase does not collect", "Remove the hook, or set type: online."
        if place.phase.type == "eval_only" and hook.name != "evaluate":
            yield key, "an eval_only phase only evaluates", "Remove the hook, or set type: online."


def _check_names(place: _Place, config: RunConfig) -> Findings:
    phase = place.phase
    for name in phase.buffers():
        if name not in config.buffers:
            fix = f"{nearest(name, config.buffers)} Buffers are declared below 'buffers:'.".strip()
            yield f"{place.key}.{'buffer' if name == phase.buffer else 'hooks'}", f"there is no buffer '{name}'", fix
    controllers = registry.kinds("controller")
    if phase.controller and "." in phase.controller:
        registry.check_foreign("controller", phase.controller)  # before any advice about the phase
    elif phase.controller and phase.controller not in controllers:
        fix = nearest(phase.controller, controllers)
        yield f"{place.key}.controller", f"there is no controller '{phase.controller}'", fix
    for word in phase.keep:
        if word not in KEPT:
            yield f"{place.key}.keep", f"'{word}' is not something a phase can keep", nearest(word, KEPT)


def _check_overrides(place: _Place, config: RunConfig) -> Findings:
    for key in place.phase.overrides:
        if key.split(".")[0] == "env" and not has_hook(place.phase, "collect"):
            what = "no hook of this phase steps the env that it changes; evaluations play the run's own env"
            yield f"{place.key}.overrides.{key}", what, "Remove it, or set it for the whole run."
    refused = [(key, reason) for key in place.phase.overrides if (reason := refusal(config, key))]
    for key, (what, fix) in refused:
        yield f"{place.key}.overrides.{key}", what, fix
    if not refused:
        try:
            phase_config(config, place.phase)
        except ConfigError as error:
            yield f"{place.key}.overrides", error.message.removesuffix("."), error.fix


def _check_until(place: _Place) -> Findings:
    if place.phase.until is None:
        return
    key, metric = f"{place.key}.until.metric", place.phase.until.metric
    group, _, name = metric.partition("/")
    if not name or not group.startswith(("collect", "evaluate", "update")):
        fix = "Write collect/..., evaluate/... or update/..., then the metric's name."
        yield key, f"no metric is called '{metric}'", fix
    elif not has_hook(place.phase, group):
        yield key, f"the phase has no hook '{group}' to record '{metric}'", f"Add the hook '{group}'."


def _check_own_actions(config: RunConfig) -> Findings:
    """An on-policy algorithm must not learn from the actions of a controller."""
    if not algorithm_traits(config.algorithm.kind).on_policy:
        return
    filled: dict[str, tuple[str, Phase]] = {}
    for key, phase in by_buffer(config.phases):
        if phase.controller and has_hook(phase, "collect"):
            filled[phase.buffer] = (key, phase)
        if phase.buffer in filled and has_update(phase):
            where, source = filled[phase.buffer]
            what = (
                f"{config.algorithm.kind} learns only from actions that it chose itself, but phase '{phase.name}' "
                f"would learn from those of '{source.controller}'"
            )
            fix = "Remove the controller" if source is phase else f"Remove the phase '{source.name}'"
            drop = "" if source is phase else f", or drop its rows: {where}.keep=[algorithm,normaliser,episodes]"
            yield f"{where}.controller", what, f"{fix}{drop}."
        if has_update(phase) or "buffer" not in phase.keep:
            filled.pop(phase.buffer, None)


def _check_holdout(config: RunConfig) -> Findings:
    """Held-out data and ``validate`` need each other."""
    for name, buffer in config.buffers.items():
        if getattr(buffer, "holdout", 0) and not getattr(buffer, "source", None):
            what, fix = "only episodes of a source can be held out", f"Set buffers.{name}.source=DIR, or holdout=0."
            yield f"buffers.{name}.holdout", what, fix
    has_losses = isinstance(registry.load("algorithm", config.algorithm.kind), HasHeldOutLoss)
    for place in _places(config.phases):
        if not has_hook(place.phase, "validate"):
            continue
        key = next(key for key, hook in place.hooks() if hook.name == "validate")
        name = place.phase.buffer
        if not has_losses:
            yield key, f"{config.algorithm.kind} has no losses for held-out data", "Remove the hook."
        elif not getattr(config.buffers.get(name), "holdout", 0):
            yield key, f"buffer '{name}' holds nothing out", f"Set buffers.{name}.holdout=0.1, or remove the hook."


def _check_freeze(config: RunConfig) -> Findings:
    """A normaliser that takes its statistics from a dataset needs one."""
    if config.normaliser.freeze == "dataset" and not any(
        getattr(buffer, "source", None) for buffer in config.buffers.values()
    ):
        fix = "Set buffers.main.source=DIR, or normaliser.freeze=never."
        yield "normaliser.freeze", "no buffer has a source whose data could set the statistics", fix


def _check_early_stop(config: RunConfig) -> Findings:
    if config.early_stop != "solved":
        return
    if config.env.spec.solved_at is None:
        fix = "Set env.spec.solved_at=..., or early_stop=off."
        yield "early_stop", "the return that solves this env is unknown", fix
    if not any(has_hook(place.phase, "evaluate") for place in _places(config.phases)):
        fix = "Add the hook '- evaluate: {episodes: 10, every_steps: 10_000}'."
        yield "early_stop", "no phase evaluates", fix


def _check_priorities(config: RunConfig) -> Findings:
    """Without reported priorities, prioritised sampling would silently be uniform."""
    if algorithm_traits(config.algorithm.kind).priorities:
        return
    able = algorithms_with("priorities")
    for name, buffer in config.buffers.items():
        if any(key[-1] == "kind" and value == "prioritised" for key, value in leaves(buffer.model_dump(mode="json"))):
            what = f"{config.algorithm.kind} reports no priorities, which a prioritised sampler needs"
            yield f"buffers.{name}.sampler", what, f"Set its kind to uniform. Priorities work with: {', '.join(able)}."


def _check_recurrent(config: RunConfig) -> Findings:
    """Recurrent networks need rows in order, and an agent that carries their hidden state."""
    for path, network in networks_of(config.algorithm):
        if not is_recurrent(network.kind):
            continue
        key = ".".join(("algorithm", *path, "kind"))
        if len(path) > 1:
            yield key, f"a recurrent network ({network.kind}) cannot be the encoder of another", "Set mlp, or a CNN."
        elif not algorithm_traits(config.algorithm.kind).recurrent:
            able = algorithms_with("recurrent")
            fix = f"Set algorithm.network.kind=auto. Recurrent networks work with: {', '.join(able)}."
            yield key, f"{config.algorithm.kind} cannot train a recurrent network ({network.kind})", fix
        else:
            yield from _check_windows(config)


def _check_windows(config: RunConfig) -> Findings:
    """A buffer needs room for one window of each env."""
    length = int(getattr(getattr(config.algorithm, "sequence", None), "length", 0))  # 0: it reads no windows
    rows = length * config.env.num_envs
    for name in dict.fromkeys(place.phase.buffer for place in _places(config.phases) if has_update(place.phase)):
        capacity = getattr(config.buffers.get(name), "capacity", None)
        if capacity is not None and capacity < rows:
            what = f"no window of {count(length, 'row')} (algorithm.sequence.length) of one env fits"
            fix = f"Set buffers.{name}.capacity={rows} or more (length times envs), or a shorter length."
            yield f"buffers.{name}.capacity", what, fix


def _check_precision(config: RunConfig) -> Findings:
    """Refuse a precision that the algorithm ignores."""
    kind = config.algorithm.kind
    if config.backend.precision != "bfloat16" or algorithm_traits(kind).bfloat16:
        return
    able = algorithms_with("bfloat16")
    fix = f"Set backend.precision=auto. bfloat16 works with: {', '.join(able)}."
    yield "backend.precision", f"{kind} computes only in float32", fix
