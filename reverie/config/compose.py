"""Compose ``<env>:<variant> [preset ...] [key=value ...]`` into one tree of values with the source of each.

Later layers override earlier ones: schema defaults, the algorithm's file, the env's file or that of its suite, its
variant, presets from left to right, the command line. We do not use Hydra's compose: it keeps no sources, cannot expand
patterns against the schema, and answers a typo with advice to force it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from reverie.config.fields import fill_defaults
from reverie.config.path_names import PathNames, name_sources, named_paths
from reverie.config.presets import (
    Preset,
    algorithm_names,
    find_env_preset,
    find_in_folder,
    find_presets,
    preset_for,
    take_variants,
    variant_names,
)
from reverie.config.sb3 import Translator, split_names
from reverie.config.tree import (
    Path,
    Tree,
    assignments,
    get,
    glob,
    join_path,
    leaves,
    put,
    split_path,
)
from reverie.config.typed import typed_source
from reverie.config.yaml_text import parse_value
from reverie.core import registry
from reverie.core.errors import ConfigError, did_you_mean, nearest

DEFAULT = "default"
DECIDED = "decided at the start"
ENV_ARGUMENTS = ("env", "kwargs")
"""Keys below this are arguments of the env: a 'kind' there names no component."""
METRIC_RULES = ("log", "rules")
"""Keys below this are patterns of metric names."""
_PHASE_REFERENCE = re.compile(r"\$\{(phases\.[^}$]+)\}")
Assignments = Iterable[tuple[Path, Any]]


@dataclass
class Composed:
    """The values of a run before they are checked, the source of each, and notes for the user."""

    tree: Tree = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def apply(self, layer: Assignments, source: str) -> None:
        """Apply a layer over the others. Kinds go first: the keys beside them belong to the new component."""
        for path, value in sorted(layer, key=_kinds_first):
            for target in self._expand(path, source):
                self._assign(target, value, source)

    def apply_overrides(self, layer: Assignments, source: str, steps: int | None = None) -> None:
        """Apply the user's settings, also under names of Stable-Baselines3. ``steps`` is the budget."""
        pairs = list(layer)
        kinds = [value for path, value in pairs if path in (("algorithm",), ("algorithm", "kind"))]
        own, foreign = split_names(pairs, [get(self.tree, ("algorithm", "kind")), *kinds][-1])
        self.apply(own, source)
        if foreign:
            names = PathNames(self.tree)
            keys = {names.shown(names.find(path)) for path, _ in own}
            translator = Translator(lambda: fill_defaults(self.tree), foreign, keys, steps)
            translator.translate(lambda found: self.apply(found, source))
            self.notes += translator.notes

    def named_sources(self) -> dict[str, str]:
        """The source of each value, by the keys that users type."""
        return name_sources(self.sources, self.tree)

    def _assign(self, path: Path, value: Any, source: str) -> None:
        current = get(self.tree, path)
        is_component = isinstance(current, dict) and "kind" in current and path[:2] != ENV_ARGUMENTS
        if is_component and isinstance(value, str):
            path = (*path, "kind")
        if path[-1] == "kind":
            self._change_kind(path[:-1], value)
        put(self.tree, path, value)
        covered = self._forget(path)
        if isinstance(value, list) and len(covered) > 1:
            self.notes.append(_replaced(PathNames(self.tree).shown(path), source, covered))
        self.sources.update({join_path(leaf): source for leaf, _ in leaves(value, path)})

    def _change_kind(self, owner: Path, kind: Any) -> None:
        """Drop the settings of the component that was chosen before. Settings given to ``auto`` apply to any kind."""
        component = get(self.tree, owner)
        if not isinstance(component, dict) or owner[:2] == ENV_ARGUMENTS:
            return
        old = component.get("kind") or get(fill_defaults(self.tree), (*owner, "kind"))
        dropped = [key for key in component if key != "kind"]
        if old in (kind, "auto", None) or not dropped or ("." in str(kind) and registry.extends(kind, old)):
            return
        for key in dropped:
            del component[key]
            self._forget((*owner, key))
        self.notes.append(f"{join_path(owner)}: {old} became {kind}, so {', '.join(dropped)} of {old} no longer hold.")

    def _forget(self, path: Path) -> list[str]:
        """Remove the sources of the values that a new value replaces. Returns them, oldest first."""
        text = join_path(path)
        covered = [known for known in self.sources if known == text or known.startswith(text + ".")]
        return list(dict.fromkeys(self.sources.pop(known) for known in covered))

    def _expand(self, path: Path, source: str) -> list[Path]:
        """The paths that a typed path stands for: one by its name, or all that a pattern matches.

        A pattern is compared with all keys of the schema, with the kinds chosen so far.
        """
        names = PathNames(self.tree)
        target = names.find(path)
        names.check(target)
        if not any("*" in part for part in path) or path[:2] == METRIC_RULES:
            if _is_by_number(path) and (shown := names.shown(target)) != join_path(path):
                self.notes.append(f"{join_path(path)} ({source}): phases and hooks have names. Write {shown}.")
            return [target]
        known = list(named_paths(fill_defaults(self.tree)))
        by_name, by_number = glob(join_path(path)), glob(join_path(target))
        matches = [p for shown, p in known if by_name.fullmatch(shown) or by_number.fullmatch(join_path(p))]
        if not matches:
            raise ConfigError(
                f"The pattern '{join_path(path)}' ({source}) matches no key.",
                _near_pattern(path, known),
            )
        return matches


def _is_by_number(path: Path) -> bool:
    """Whether a typed path names a phase or a hook by its index in the list."""
    return any(key.isdigit() and before in ("phases", "hooks") for before, key in pairwise(path))


def _near_pattern(path: Path, known: Sequence[tuple[str, Path]]) -> str:
    last = {candidate[-1] for _, candidate in known}
    if path[-1] in last:
        return f"The key is elsewhere: **.{path[-1]} finds it."
    return nearest(path[-1], last)


def compose(spec: str, presets_and_overrides: Sequence[str] = (), steps: int | None = None) -> Composed:
    """Compose a run's values. :func:`reverie.config.validate.load_config` then checks them.

    ``steps`` is the budget of the run, for settings that are a fraction of it.
    """
    env, variant = split_spec(spec)
    composed = Composed()
    presets = {word: find_presets(word) for word in presets_and_overrides if "=" not in word}
    instead = [found[0].label for found in presets.values() if any(preset.body.get("untuned") for preset in found)]
    for layer, source in _spec_layers(env, variant, composed.notes, instead):
        composed.apply(layer, source)
    for word, found in presets.items():
        preset = preset_for(word, found, get(composed.tree, ("algorithm", "kind")))
        values = {key: value for key, value in preset.body.items() if key != "untuned"}
        composed.apply(assignments(values), preset.label)
    overrides = [word for word in presets_and_overrides if "=" in word]
    composed.apply_overrides(override_assignments(overrides), typed_source(), steps)
    written, composed.tree = composed.tree, fill_defaults(interpolate(fill_defaults(composed.tree)))
    known = {path: _source(path, composed.sources, written) for path, _ in leaves(composed.tree)}
    composed.sources = name_sources({join_path(path): source for path, source in known.items()}, composed.tree)
    return composed


def split_spec(spec: str) -> tuple[str, str]:
    """``<env>:<variant>``, split at the last colon; env ids may hold colons of their own."""
    env, colon, variant = spec.rpartition(":")
    if env and variant:
        return env, variant
    if variant and colon:
        raise ConfigError(
            f"'{spec}' names no env to train on.",
            f"Write CartPole-v1:{variant}, for example; reverie envs list shows what there is.",
        )
    env = spec.removesuffix(":") if colon else variant
    if env in algorithm_names():
        raise ConfigError(f"'{env}' is an algorithm, not an environment.", f"The env comes first: CartPole-v1:{env}.")
    names = variant_names(env)
    raise ConfigError(f"'{spec}' names no algorithm or variant.", f"Write {' or '.join(f'{env}:{n}' for n in names)}.")


def require_phases(composed: Composed, spec: str) -> None:
    """Refuse a run without phases: an algorithm without a preset file brings none."""
    if composed.tree.get("phases") is not None:
        return
    env, variant = split_spec(spec)
    raise ConfigError(
        f"phases: is missing, because '{variant}' has no preset file.",
        f"Take phases and buffers of another algorithm: reverie train {env}:ppo algorithm.kind={variant}; "
        f"or write both into a file and name it: reverie train {spec} my_phases.yaml",
    )


def interpolate(tree: Tree) -> Tree:
    """Replace references by the values that they name: ``${other.key}``, a full key from the root."""
    if not any(isinstance(value, str) and "${" in value for _, value in leaves(tree)):
        return tree
    names = PathNames(tree)
    for path, value in list(leaves(tree)):
        if isinstance(value, str) and "${phases." in value:
            put(tree, path, _PHASE_REFERENCE.sub(lambda m: f"${{{join_path(names.find(split_path(m[1])))}}}", value))
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        container = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        key = getattr(error, "full_key", None) or "a key"
        reason = str(error).splitlines()[0] if str(error) else "it refers to itself"
        raise ConfigError(
            f"{key}: the reference cannot be resolved: {reason}.",
            "Write ${...} with a full key such as ${algorithm.gamma}.",
        ) from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _source(path: Path, sources: dict[str, str], written: Tree) -> str:
    """The source of a leaf: its own, or that of the short form that set it (a bare kind, a reference to a branch)."""
    for length in range(len(path), 0, -1):
        source = sources.get(join_path(path[:length]))
        if source and (length == len(path) or path[-1] == "kind" or "${" in str(get(written, path[:length]))):
            return source
    return DEFAULT


def _spec_layers(
    env: str, variant: str, notes: list[str], instead: Sequence[str] = ()
) -> Iterator[tuple[Assignments, str]]:
    """The layers of env and variant: the algorithm's file, the file of the env or its suite, the variant in it.

    Its tuned values are left out where presets, ``instead``, have their own for tasks of that kind; what the env itself
    is given stays: a variant that sees pictures goes on seeing them.
    """
    preset = find_env_preset(env)
    body = dict(preset.body) if preset else {}
    variants = take_variants(body, env)
    parent = registry.parent_kind("algorithm", variant) if "." in variant and variant not in variants else None
    tuned = dict(variants.get(parent or variant, {}))
    base = str(tuned.pop("base", parent or variant))
    algorithm = find_in_folder("algo", base)
    if algorithm:
        yield from _algorithm_layers(algorithm)
    elif base in registry.kinds("algorithm") or "." in base:
        yield assignments({"algorithm": {"kind": base}}), typed_source()
    else:
        has_file = find_in_folder("env", env) is not None
        raise _unknown_variant(env, base, {*variants, *algorithm_names()}, has_file)
    yield [(("env", "id"), env)], typed_source()
    if preset:
        yield assignments(body), preset.label
    if preset:
        kept = [(path, value) for path, value in assignments(tuned) if not instead or path[:2] == ("env", "kwargs")]
        yield kept, f"{preset.label} ({parent or variant})"
    if parent is not None:
        yield [(("algorithm", "kind"), variant)], typed_source()
    if tuned and instead:
        notes.append(f"The values of {' and '.join(instead)} replace the tuned ones of {env}:{variant}.")
    if (parent or variant) not in variants:
        notes.append(f"No tuned values for {parent or variant} on {env}: the algorithm's defaults are used.")


def _unknown_variant(env: str, variant: str, known: set[str], has_file: bool) -> ConfigError:
    """The error for an unknown variant, or for an unknown env."""
    from reverie.envs.make import find_spec, is_dotted

    if not has_file and not is_dotted(env):
        try:
            find_spec(env)
        except ConfigError as error:
            return error
    listed = ", ".join(sorted(known))
    return ConfigError(f"'{env}' has no variant '{variant}'. There are: {listed}.", did_you_mean(variant, known))


def _algorithm_layers(preset: Preset) -> Iterator[tuple[Assignments, str]]:
    """The layers of an algorithm's file: first the file that it names as its ``base``, then its own values."""
    body = dict(preset.body)
    base = body.pop("base", None)
    if base is not None:
        below = find_in_folder("algo", str(base))
        if below is None or "base" in below.body:
            raise ConfigError(f"{preset.label}: there is no algorithm file '{base}' to build on.", "Correct 'base'.")
        yield assignments(below.body), below.label
    yield assignments(body), preset.label


def override_assignments(words: Sequence[str]) -> list[tuple[Path, Any]]:
    """The assignments of ``key=value`` words."""
    return [pair for word in words for pair in _parse_override(word)]


def _parse_override(word: str) -> Assignments:
    key, _, text = word.partition("=")
    if not key.strip(" ."):
        raise ConfigError(f"'{word}' names no key.", "Write key=value, for example seed=1.")
    return assignments(parse_value(text.strip()), split_path(key.strip()))


def _replaced(key: str, source: str, covered: list[str]) -> str:
    """A note about a replaced list. The first of the sources set the old list, the others changed it."""
    return f"{key}: {source} replaces the whole list, so the changes of {' and '.join(covered[1:])} are lost."


def _kinds_first(assignment: tuple[Path, Any]) -> tuple[bool, int]:
    path = assignment[0]
    return (False, len(path)) if path[-1] == "kind" else (True, 0)
