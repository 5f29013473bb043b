"""The meaning, type and default of every key, read from the schema."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reverie.config.fields import Shape, component_config, default_of, field_shape
from reverie.config.path_names import PathNames, named_leaves
from reverie.config.phases import Hook
from reverie.config.schema import RunConfig
from reverie.config.tree import Path, Tree, get, glob, leaves
from reverie.core import registry
from reverie.core.config import ComponentConfig, Config
from reverie.core.errors import ConfigError, nearest
from reverie.core.schedule import Schedule

REQUIRED = "(required)"
ABSENT = "(absent)"
_NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text", Any: "anything", type(None): "null"}
_BOUNDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


@dataclass(frozen=True)
class Explanation:
    """One key of the schema. ``*`` stands for an index or a name of your own. ``kinds`` have this key."""

    key: str
    meaning: str
    type: str
    default: Any
    kinds: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """A key in which two configs differ."""

    key: str
    left: Any
    right: Any


def explain(pattern: str = "**") -> list[Explanation]:
    """The keys that match a key, a bare name or a pattern, or those of a kind (ppo) or a dotted class."""
    known = all_keys()
    pattern = re.sub(r"\.hooks\.(?=.+\.)(\d+\.|\*\.)?", ".", pattern)  # phases.0.hooks.1.update.updates
    wanted = pattern if "." in pattern or "*" in pattern else f"**.{pattern}"
    exact = [entry for entry in known if entry.key == pattern]
    found = exact or [entry for entry in known if _stands_for(wanted, entry.key)]
    if not found and (of_kind := [entry for entry in known if pattern in entry.kinds]):
        return of_kind
    if not found and _names_class(pattern):
        return explain_class(pattern)
    if not found:
        names = {entry.key.rpartition(".")[2] for entry in known} - {"*"}
        raise ConfigError(f"There is no key '{pattern}'.", nearest(pattern.rpartition(".")[2], names))
    return found


def explain_class(path: str) -> list[Explanation]:
    """The keys of a class of your own, without ``kind``."""
    config = getattr(registry.import_name(path), "Config", None)
    if not (isinstance(config, type) and issubclass(config, Config)):
        raise ConfigError(
            f"The class '{path}' has no config class.",
            "Give it a nested 'class Config(ComponentConfig)' with its settings.",
        )
    return _merge(_walk_config(config, "", (path,), ()))


def _names_class(pattern: str) -> bool:
    """Whether it begins with an existing module, and not with a section of the config."""
    package, *inner = pattern.split(".")
    is_path = bool(inner) and all(part.isidentifier() for part in (package, *inner))
    return is_path and package not in RunConfig.model_fields and find_spec(package) is not None


def explain_tree(tree: Tree) -> list[tuple[Explanation, Any]]:
    """The keys of a config with its chosen kinds, each with its value."""
    known = all_keys()
    explained = []
    names = PathNames(tree)
    for path, value in leaves(tree, whole_schedules=True):
        key, kind = names.shown(path), _kind_around(tree, path)
        matches = [e for e in known if _stands_for(e.key, key) and (not e.kinds or kind in e.kinds)]
        explained += [(replace(entry, key=key), value) for entry in matches[:1]]
    return explained


def _kind_around(tree: Tree, path: Path) -> Any:
    """The kind of the innermost component that a key belongs to."""
    above = (get(tree, (*path[:end], "kind")) for end in range(len(path) - 1, 0, -1))
    return next((kind for kind in above if kind is not None), None)


def diff(left: Tree, right: Tree) -> list[Difference]:
    """The keys in which two trees differ, in the order of the first."""
    sides = [dict(named_leaves(tree, whole_schedules=True)) for tree in (left, right)]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    pairs = [Difference(key, sides[0].get(key, ABSENT), sides[1].get(key, ABSENT)) for key in keys]
    return [pair for pair in pairs if pair.left != pair.right]


def all_keys() -> list[Explanation]:
    """Every key of the schema, for all registered kinds. Imports them all."""
    return _merge(_walk_config(RunConfig, "", (), ()))


def _walk_config(
    config: type[Config], prefix: str, kinds: tuple[str, ...], above: tuple[Any, ...]
) -> Iterator[Explanation]:
    if config in above:  # phases may contain phases: list them once
        return
    for name, field in config.model_fields.items():
        if (issubclass(config, ComponentConfig) and name == "kind") or (config is Hook and name == "name"):
            continue  # explained once for all kinds, by the key itself
        key = f"{prefix}.{name}" if prefix else name
        default = default_of(field)
        shown = REQUIRED if default is PydanticUndefined else default
        yield Explanation(key, _meaning(config, name), describe_type(field), shown, kinds)
        yield from _walk_shape(field_shape(field), key, kinds, (*above, config), default)


def _walk_shape(
    shape: Shape, key: str, kinds: tuple[str, ...], above: tuple[Any, ...], default: Any = None
) -> Iterator[Explanation]:
    if shape.form == "config" and shape.config is not None:
        where = key.removesuffix(".hooks.*") + ".*" if shape.config is Hook else key
        yield from _walk_config(shape.config, where, kinds, above)
    elif shape.item is not None:
        yield from _walk_shape(shape.item, f"{key}.*", kinds, above)
    elif shape.form == "component":
        known = registry.kinds(shape.group)
        kind = default.get("kind", REQUIRED) if isinstance(default, dict) else REQUIRED
        yield Explanation(f"{key}.kind", _meaning(ComponentConfig, "kind"), " | ".join(known), kind)
        for name in known:
            yield from _walk_config(component_config(shape.group, name), key, (*kinds, name), above)


def _meaning(config: type[Config], name: str) -> str:
    """The description of a field, or of the field that it overrides."""
    bases = [base for base in config.__mro__ if issubclass(base, Config) and name in base.model_fields]
    return next((" ".join(text.split()) for base in bases if (text := base.model_fields[name].description)), "")


def _merge(entries: Iterator[Explanation]) -> list[Explanation]:
    """Join the kinds that have the same key with the same meaning."""
    merged: dict[tuple[str, str, str, str], Explanation] = {}
    for entry in entries:
        same = (entry.key, entry.meaning, entry.type, str(entry.default))
        kinds = merged[same].kinds if same in merged else ()
        merged[same] = Explanation(*same[:3], entry.default, tuple(dict.fromkeys([*kinds, *entry.kinds[-1:]])))
    return list(merged.values())


def _stands_for(pattern: str, key: str) -> bool:
    """Whether a typed key or pattern matches this key of the schema."""
    return bool(glob(pattern).fullmatch(key) or ("*" in key and glob(key).fullmatch(pattern)))


def describe_type(field: FieldInfo) -> str:
    """A field's type in words, with its bounds."""
    text = _type_name(field.annotation, tuple(field.metadata))
    bounds = [
        words.format(limit)
        for mark in field.metadata
        for name, words in _BOUNDS.items()
        if (limit := getattr(mark, name, None)) is not None
    ]
    return ", ".join([text, *bounds])


def _type_name(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    for mark in metadata:
        if hasattr(mark, "group"):
            return f"{mark.group}, kinds: {', '.join(registry.kinds(mark.group))}"
    arguments, origin = get_args(annotation), get_origin(annotation)
    if origin is Annotated:
        return _type_name(arguments[0], arguments[1:])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    if origin in (tuple, list):
        return f"list ({_type_name(arguments[0])})"
    if origin is dict:
        return f"mapping of names to {_type_name(arguments[1])}"
    if annotation is Schedule:
        return "number or schedule"
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))
