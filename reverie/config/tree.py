"""Dotted paths into plain nested dicts and lists: ``phases.0.hooks.1.collect.rows``.

One rule is special: below a phase's ``overrides`` keys stay dotted, since there the dotted key is a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reverie.core.errors import ConfigError
from reverie.core.schedule import LINEAR
from reverie.core.wording import count

Tree = dict[str, Any]
Path = tuple[str, ...]

DOTTED_BELOW = "overrides"
SCHEDULE_KEYS = {"start", "end", "from", "to"}


def split_path(text: str) -> Path:
    """A dotted key as the steps that lead to its value."""
    return _rejoin(tuple(text.split(".")))


def join_path(path: Path) -> str:
    return ".".join(path)


def assignments(value: Any, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The assignments in a mapping with nested or dotted keys, in order. Lists and empty mappings are set whole."""
    if isinstance(value, Mapping) and (value or not prefix):
        for key, inner in value.items():
            yield from assignments(inner, (*prefix, *str(key).split(".")))
    else:
        yield _rejoin(prefix), nest(value)


def nest(value: Any) -> Any:
    """A copy whose dotted keys are nested."""
    if isinstance(value, Mapping):
        tree: Tree = {}
        for path, inner in assignments(value):
            put(tree, path, inner)
        return tree
    return [nest(item) for item in value] if isinstance(value, (list, tuple)) else value


def children(value: Any) -> list[tuple[str, Any]]:
    """The children of a branch, by key or index. Empty for a leaf. A list of plain values is a leaf."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [(str(index), item) for index, item in enumerate(value)]
    return []


def leaves(value: Any, prefix: Path = (), whole_schedules: bool = False) -> Iterator[tuple[Path, Any]]:
    """The leaves of a tree. A schedule is one leaf or four, one per number."""
    inner = [] if whole_schedules and is_schedule(value) else children(value)
    for key, child in inner:
        yield from leaves(child, (*prefix, key), whole_schedules)
    if not inner:
        yield prefix, value


def is_schedule(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == SCHEDULE_KEYS


def all_paths(value: Any, prefix: Path = ()) -> Iterator[Path]:
    """Every path of a tree, branches before their children."""
    for key, child in children(value):
        yield (*prefix, key)
        yield from all_paths(child, (*prefix, key))


def get(tree: Any, path: Path, default: Any = None) -> Any:
    """The value at a path, or the default if there is none."""
    node = tree
    for key in path:
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return default
    return node


def put(tree: Tree, path: Path, value: Any) -> None:
    """Set the value at a path. Missing mappings on the way are created. List entries must exist."""
    node: Any = tree
    for depth, key in enumerate(path[:-1]):
        inner = get(node, (key,))
        if not isinstance(inner, list):
            inner = _as_branch(inner, path[depth + 1])
        _set_item(node, key, inner, path)
        node = inner
    if not (value == {} and isinstance(get(node, path[-1:]), dict)):
        _set_item(node, path[-1], value, path)


def glob(pattern: str) -> re.Pattern[str]:
    """``*`` stands for one level or a part of a name, ``**`` for any number of levels."""
    parts = [
        r"(?:[^.]+\.)*" if part == "**" else re.escape(part).replace(r"\*", "[^.]*") + r"\."
        for part in pattern.split(".")
    ]
    if pattern.endswith("**"):
        parts.append("[^.]+")
    return re.compile("".join(parts).removesuffix(r"\."))


def _set_item(node: Any, key: str, value: Any, path: Path) -> None:
    if isinstance(node, dict):
        node[key] = value
    elif key.isdigit() and int(key) < len(node):
        node[int(key)] = value
    else:
        raise ConfigError(
            f"'{join_path(path)}' does not exist: '{key}' is not an entry of that list.",
            f"It has {count(len(node), 'entry', 'entries')}, counted from 0." if node else "The list is empty.",
        )


def _as_branch(value: Any, next_key: str) -> Any:
    """The branch to descend into. Short forms (a component's bare kind, a hook's bare name) are expanded."""
    if isinstance(value, dict):
        return value
    if value is None and next_key.isdigit():
        return []
    if isinstance(value, str) and not LINEAR.match(value):
        return {value: {}} if value == next_key else {"kind": value}
    return {}


def _rejoin(path: Path) -> Path:
    if DOTTED_BELOW not in path[:-1]:
        return path
    cut = path.index(DOTTED_BELOW) + 1
    return (*path[:cut], ".".join(path[cut:]))
