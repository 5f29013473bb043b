"""The pipeline from values to a config that can run: compose, validate, resolve, check.

``train``, ``--dry-run``, ``resume``, ``verify``, ``config show``, saved policies and the Python API all use it.
docs/config.md lists the checks of each. Everything that the text alone decides is checked before the env is made. The
env is made once, and the facts read from it (:class:`EnvFacts`) are passed on to the builder of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reverie.config.agent_checks import check_agent, check_data
from reverie.config.checks import check_config
from reverie.config.compose import Composed, compose, interpolate, override_assignments, require_phases
from reverie.config.debug_mode import prepare_debug
from reverie.config.decide import decide_auto, decide_before_probe
from reverie.config.fields import fill_defaults
from reverie.config.files import config_to_tree, read_tree
from reverie.config.kernel_choice import choose_kernels
from reverie.config.overrides import phase_config
from reverie.config.phases import Phase, flatten_phases
from reverie.config.problems import check_written
from reverie.config.resolve import resolve_numbers, set_budget
from reverie.config.schema import BackendConfig, EvaluateConfig, RunConfig
from reverie.config.tree import Tree, get, join_path
from reverie.config.typed import typed_source
from reverie.config.validate import load_config, load_part
from reverie.core.contracts import Algorithm
from reverie.core.errors import ConfigError, RunError
from reverie.core.specs import Specs
from reverie.data.source import check_fits, check_holdout, open_source
from reverie.envs.config import EnvConfig
from reverie.envs.goals import make_goals
from reverie.envs.jax_setup import choose_threads
from reverie.envs.probe import EnvFacts, probe_env
from reverie.machine.memory import is_debugged


@dataclass(frozen=True)
class Prepared:
    """A resolved config, the facts about its env, and the values that it was composed from."""

    config: RunConfig
    env: EnvFacts
    composed: Composed

    @property
    def specs(self) -> Specs:
        return self.env.specs


def prepare_new(
    spec: str,
    words: Sequence[str] = (),
    seed: int | None = None,
    steps: int | None = None,
    tries_algorithm: bool = True,
) -> Prepared:
    """The checked config of a new run. ``steps`` is a budget that replaces the one of the phases.

    A run that trains in this process builds its algorithm right away, so it needs no trial without weights.
    """
    composed = compose(spec, [*words, *([f"seed={seed}"] if seed is not None else [])], steps)
    require_phases(composed, spec)
    prepare_debug(composed, is_debugged())
    check_written(composed.tree, composed.sources)
    prepared = resolve(composed, steps)
    check(prepared)
    return _try_algorithm(prepared) if tries_algorithm else prepared


def read_saved(path: Path, known: EnvFacts | None = None) -> Prepared:
    """The config of an existing run; call :func:`check` next. With ``known`` no env needs to be made."""
    tree = read_tree(path)
    return resolve(Composed(tree, dict.fromkeys(tree, str(path))), known=known)


def change_saved(saved: Prepared, overrides: Sequence[str], steps: int | None = None) -> Prepared:
    """A run's config with changed settings; call :func:`check` next. Values that were resolved before stay."""
    composed = Composed(tree=config_to_tree(saved.config))
    composed.apply_overrides(override_assignments(overrides), typed_source(), steps)
    _refuse_another_task(saved.config, composed.tree)
    if any("${" in word for word in overrides):  # only users write references; a run's file has none
        composed.tree = interpolate(fill_defaults(composed.tree))
    composed.sources = composed.named_sources()
    return resolve(composed, steps, saved.env)


def _refuse_another_task(config: RunConfig, tree: Tree) -> None:
    """Refuse another algorithm or env, because the checkpoint would not fit."""
    for path, old in ((("algorithm", "kind"), config.algorithm.kind), (("env", "id"), config.env.id)):
        new = get(tree, path)
        if new != old:
            raise RunError(
                f"{join_path(path)} cannot change in the middle of a run: it is {old}, not {new}.",
                "Start a new run; reverie train ... --init-from copies the weights that fit.",
            )


def resolve(composed: Composed, steps: int | None = None, known: EnvFacts | None = None) -> Prepared:
    """Fill in numbers, check that the parts fit each other, make the env once and resolve every ``auto``."""
    sources = composed.sources
    if steps is not None:
        composed.tree = set_budget(composed.tree, steps, sources)
    tree = resolve_numbers(composed.tree, sources)
    decide_before_probe(tree)
    _check_parts(load_config(tree, sources), sources)
    choose_threads(tree["backend"]["threads"])
    env = load_part(EnvConfig, tree["env"], ("env",), sources)
    facts = known if known is not None and known.config == env else probe_env(env)
    config = decide_auto(tree, facts)
    return Prepared(config, replace(facts, config=config.env), composed)


def _check_parts(config: RunConfig, sources: Mapping[str, str]) -> None:
    """Check that the parts of the config fit each other, also with the overrides of each phase."""
    check_config(config, sources)
    for phase in flatten_phases(config.phases):
        if phase.overrides:
            own = dict.fromkeys(phase.overrides, f"overrides of phase '{phase.name}'")
            check_config(phase_config(config, phase), {**sources, **own})


def check(prepared: Prepared, stored: Iterable[str] = ()) -> None:
    """Refuse what this machine, the env or stored data do not allow. Whoever builds the algorithm checks that it fits.

    ``stored`` names the buffers whose data is in the checkpoint that a run continues from: they need no source.
    """
    from reverie.backend import check_device  # imports torch

    config = prepared.config
    check_device(config.backend.device)
    _check_episodes_end(prepared)
    _check_sources(prepared, set(stored))
    _check_goals(prepared.config)
    _check_phases(prepared)


def _try_algorithm(prepared: Prepared) -> Prepared:
    """Check that the algorithm fits the env and the buffers, and that there are enough rows for its first update."""
    algorithm = check_agent(prepared.config, prepared.specs)
    if algorithm is None:
        return prepared
    check_data(prepared.config, algorithm.reads)
    return with_kernels(prepared, algorithm)


def with_kernels(prepared: Prepared, algorithm: Algorithm) -> Prepared:
    """The same with the engine and the matmul libraries that are fastest for this algorithm."""
    config, notes = choose_kernels(prepared.config, algorithm)
    prepared.composed.notes += notes
    return replace(prepared, config=config)


def check_policy(about: Mapping[str, Any], specs: Specs) -> None:
    """Refuse a saved policy whose settings are not valid, or whose env cannot be made or is no longer the same."""
    env = load_part(EnvConfig, about["env"], ("env",))
    load_part(EvaluateConfig, about["evaluate"], ("evaluate",))
    choose_threads(load_part(BackendConfig, about["backend"], ("backend",)).threads)
    found = probe_env(env).specs
    if found.observations != specs.observations or found.action != specs.action:
        raise ConfigError(
            f"The env '{env.id}' no longer has the observations and actions that this policy was trained with.",
            "Use the version of the env's package that trained it; the run's manifest.json names the versions.",
        )


def _check_episodes_end(prepared: Prepared) -> None:
    config = prepared.config
    hooks = [hook.name for phase in flatten_phases(config.phases) for hook in phase.hooks]
    if "evaluate" in hooks or config.evaluate.final_episodes:
        prepared.env.require_end()


def _check_sources(prepared: Prepared, stored: set[str]) -> None:
    """Stored data must exist, fit the env, and be enough for the held-out fraction."""
    for name, buffer in prepared.config.buffers.items():
        source, holdout = getattr(buffer, "source", None), getattr(buffer, "holdout", 0.0)
        if source is None or name in stored:
            continue
        data = open_source(source)
        check_fits(data, prepared.specs, source)
        if holdout:
            check_holdout(data, holdout, f"buffers.{name}.holdout")


def _check_goals(config: RunConfig) -> None:
    """Hindsight needs an env with goals whose rewards can be computed anew."""
    if any(getattr(buffer, "hindsight", None) is not None for buffer in config.buffers.values()):
        make_goals(config.env)


def _check_phases(prepared: Prepared) -> None:
    """Check overrides of phases: an env must keep its spaces, and the agent must still fit its buffers."""
    config, facts = prepared.config, [prepared.env]
    for phase in flatten_phases(config.phases):
        held = phase_config(config, phase)
        if all(known.config != held.env for known in facts):
            facts.append(probe_env(held.env))
            _check_same_spaces(facts[-1].specs, prepared.specs, phase)
        if held.algorithm != config.algorithm:
            check_agent(held.model_copy(update={"phases": (phase,)}), prepared.specs)


def _check_same_spaces(specs: Specs, wanted: Specs, phase: Phase) -> None:
    if specs.observations != wanted.observations or specs.action != wanted.action:
        raise ConfigError(
            f"Phase '{phase.name}' changes the env so that its observations or actions no longer fit the agent.",
            "Keep sizes and action kinds the same in the overrides of the phase.",
        )
