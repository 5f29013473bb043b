"""Phases and hooks by name: ``phases.learn.collect.rows`` instead of ``phases.1.hooks.0.collect.rows``.

A tree of values holds phases and hooks in lists, because their order matters. Users type and read names, and
:class:`PathNames` translates in both directions. Equal names get numbers, in order: ``update``, ``update_2``. A phase
inside a loop is found by its name alone. Without a usable name (missing, a number, with a dot), the number in the list
stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reverie.config.phases import Phase
from reverie.config.tree import Path, all_paths, get, join_path, leaves
from reverie.core.errors import ConfigError, nearest

PHASES, HOOKS = "phases", "hooks"


class PathNames:
    """The names of the phases and hooks of one tree."""

    def __init__(self, tree: Any) -> None:
        found = list(_walk(get(tree, (PHASES,)), (PHASES,)))
        names = _number_names((address, _field(phase, "name")) for address, phase in found)
        self.phases: dict[Path, Path] = {}
        for address, _ in found:
            above = self.phases.get(address[:-2], ())
            self.phases[address] = (PHASES, names[address]) if address in names else (*above, *address[-2:])
        self.hooks: dict[Path, str] = {}
        self.below: dict[Path, Path] = {}
        for address, phase in found:
            self._read_hooks((*address, HOOKS), phase.get(HOOKS))

    def _read_hooks(self, address: Path, hooks: Any) -> None:
        items = hooks if isinstance(hooks, list) else []
        names = {(*address, str(index)): hook_name(item) for index, item in enumerate(items)}
        self.hooks |= _number_names(names.items())
        for where, item in zip(names, items, strict=True):  # the amounts of {collect: {rows: 64}} are below its name
            self.below[where] = where if _field(item, "name") else (*where, names[where])

    def shown(self, path: Path) -> str:
        """A path into the tree as users type it."""
        address = next((path[:end] for end in range(len(path), 1, -1) if path[:end] in self.phases), None)
        if address is None:
            return join_path(path)
        phase, rest = self.phases[address], path[len(address) :]
        hook = self.hooks.get((*address, *rest[:2]))
        if hook is None:
            return join_path((*phase, *rest))
        inner = path[len(self.below[path[: len(address) + 2]]) :]
        return join_path((*phase, *((HOOKS,) if hook in Phase.model_fields else ()), hook, *inner))

    def find(self, path: Path) -> Path:
        """The path into the tree for a typed path. Everything after a pattern (``*``) stays as typed."""
        if path[:1] != (PHASES,) or len(path) < 2:
            return path
        return self._find_in_phases((PHASES,), path[1:])

    def _find_in_phases(self, above: Path, rest: Path) -> Path:
        name, after = rest[0], rest[1:]
        if "*" in name:
            return (*above, *rest)
        address = (*above, name)
        if not name.isdigit():
            address = next((known for known, shown in self.phases.items() if shown == (PHASES, name)), address)
        if not after or address not in self.phases:
            return (*address, *after)
        if after[0] == PHASES and len(after) > 1:
            return self._find_in_phases((*address, PHASES), after[1:])
        return self._find_in_phase(address, after)

    def _find_in_phase(self, address: Path, rest: Path) -> Path:
        hooks = (*address, HOOKS)
        is_long = rest[0] == HOOKS and len(rest) > 1
        name, after = (rest[1], rest[2:]) if is_long else (rest[0], rest[1:])
        if not is_long and name in Phase.model_fields:
            return (*address, *rest)
        found = next((known for known, shown in self.hooks.items() if shown == name and known[:-1] == hooks), None)
        return (*address, *rest) if found is None else (*self.below[found], *after)

    def check(self, path: Path) -> None:
        """Refuse a path to a phase that does not exist. ``path`` comes from :meth:`find`."""
        if path[:1] != (PHASES,) or len(path) < 2 or "*" in path[1] or path[:2] in self.phases or not self.phases:
            return
        known = [shown[-1] for shown in self.phases.values()]
        if not path[1].isdigit() or int(path[1]) >= sum(len(address) == 2 for address in self.phases):
            raise ConfigError(
                f"There is no phase '{path[1]}' in '{join_path(path)}'. Phases: {', '.join(known)}.",
                nearest(path[1], known) if not path[1].isdigit() else f"Write phases.{known[-1]}, for example.",
            )


def named_leaves(tree: Any, whole_schedules: bool = False) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, by the keys that users type."""
    names = PathNames(tree)
    for path, value in leaves(tree, whole_schedules=whole_schedules):
        yield names.shown(path), value


def named_paths(tree: Any) -> Iterator[tuple[str, Path]]:
    """Every path of a tree, with the key that users type."""
    names = PathNames(tree)
    for path in all_paths(tree):
        yield names.shown(path), path


def name_sources(sources: Mapping[str, str], tree: Any) -> dict[str, str]:
    """Sources by the keys that users type, from sources by paths into the tree."""
    names = PathNames(tree)
    return {names.shown(tuple(key.split("."))) if key.startswith(PHASES) else key: at for key, at in sources.items()}


def phase_keys(phases: tuple[Phase, ...]) -> dict[Path, str]:
    """The key of every phase, loops before the phases in them, by its address in the tree."""
    names = PathNames({PHASES: [phase.model_dump(mode="json") for phase in phases]})
    return {address: names.shown(address) for address, _ in _walk_models(phases, (PHASES,))}


def phases_by_key(phases: tuple[Phase, ...]) -> list[tuple[str, Phase]]:
    """Every phase with its key, loops before the phases in them."""
    keys = phase_keys(phases)
    return [(keys[address], phase) for address, phase in _walk_models(phases, (PHASES,))]


def hook_keys(key: str, phase: Phase) -> list[str]:
    """The keys of a phase's hooks in their order: ``phases.learn.collect``. ``key`` is that of the phase."""
    names = PathNames({PHASES: [{**phase.model_dump(mode="json"), "name": "this"}]})
    shown = (names.shown((PHASES, "0", HOOKS, str(index), hook.name)) for index, hook in enumerate(phase.hooks))
    return [f"{key}{text.removeprefix('phases.this')}" for text in shown]


def _walk_models(phases: tuple[Phase, ...], above: Path) -> Iterator[tuple[Path, Phase]]:
    for index, phase in enumerate(phases):
        yield (*above, str(index)), phase
        yield from _walk_models(phase.phases, (*above, str(index), PHASES))


def hook_name(item: Any) -> str:
    """The name of a hook in any form: a bare word, a name above amounts, ``name`` beside them. Empty if it has none."""
    if isinstance(item, str):
        return item
    if name := _field(item, "name"):
        return name
    if isinstance(item, dict) and len(item) == 1 and isinstance(next(iter(item.values())), dict | None):
        return str(next(iter(item)))
    return ""


def _walk(phases: Any, above: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """All phases of a tree, loops before the phases in them."""
    for index, phase in enumerate(phases if isinstance(phases, list) else []):
        if isinstance(phase, dict):
            yield (*above, str(index)), phase
            yield from _walk(phase.get(PHASES), (*above, str(index), PHASES))


def _number_names(found: Iterable[tuple[Path, str]]) -> dict[Path, str]:
    """Names by address. The first of equal names stays as it is. Entries without a usable name are left out."""
    pairs = [(address, name) for address, name in found if _is_usable(name)]
    taken, uses = {name for _, name in pairs}, Counter[str]()
    names: dict[Path, str] = {}
    for address, name in pairs:
        uses[name] += 1
        while uses[name] > 1 and f"{name}_{uses[name]}" in taken:
            uses[name] += 1
        names[address] = name if uses[name] == 1 else f"{name}_{uses[name]}"
    return names


def _is_usable(name: str) -> bool:
    return bool(name) and not name.isdigit() and "." not in name and "*" not in name


def _field(item: Any, key: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""
