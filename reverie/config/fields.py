"""The structure of values and their defaults, read from the schema.

Only the classes of chosen kinds are imported, one after the other, on the way down.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from reverie.config.phases import Hook
from reverie.config.schema import RunConfig
from reverie.config.tree import Path, Tree
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.errors import ConfigError
from reverie.core.traits import check_algorithm


@dataclass(frozen=True)
class Shape:
    """The structure of a value: a config, a swappable component, a list or mapping of those, or a leaf."""

    form: Literal["leaf", "config", "component", "list", "mapping"]
    config: type[Config] | None = None
    group: str = ""
    item: Shape | None = None


LEAF = Shape("leaf")


def shape_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> Shape:
    """The shape of a field, from its type."""
    for mark in metadata:
        if isinstance(mark, Component):
            return Shape("component", group=mark.group)
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return shape_of(arguments[0], arguments[1:])
    if isinstance(annotation, type) and origin is None and issubclass(annotation, Config):
        return Shape("config", config=annotation)
    if origin in (Union, types.UnionType):
        inner = [shape_of(argument) for argument in arguments if argument is not type(None)]
        return inner[0] if len(inner) == 1 else LEAF
    if origin in (tuple, list) and arguments:
        return _container("list", shape_of(arguments[0]))
    if origin is dict:
        return _container("mapping", shape_of(arguments[1]))
    return LEAF


def field_shape(field: FieldInfo) -> Shape:
    return shape_of(field.annotation, tuple(field.metadata))


@cache
def _field_shapes(config: type[Config]) -> dict[str, Shape]:
    return {name: field_shape(field) for name, field in config.model_fields.items()}


def networks_of(component: ComponentConfig, path: Path = ()) -> Iterator[tuple[Path, ComponentConfig]]:
    """Every network in a component, with its key. Includes the encoders of other networks."""
    for name, field in type(component).model_fields.items():
        part = getattr(component, name)
        if field_shape(field).group == "network" and part is not None:
            yield (*path, name), part
            yield from networks_of(part, (*path, name))


def component_config(group: str, kind: str) -> type[ComponentConfig]:
    """The config class of a kind. ConfigError explains what the class lacks."""
    found = registry.load(group, kind)
    config = getattr(found, "Config", None)
    if not isinstance(config, type) or not issubclass(config, ComponentConfig):
        wrong = "has no config class" if config is None else "has a Config that is no ComponentConfig"
        raise ConfigError(
            f"The {group} '{kind}' {wrong}.",
            "Give it a nested 'class Config(ComponentConfig)' with its settings.",
        )
    if group == "algorithm":
        check_algorithm(kind)
    return config


def fill_defaults(tree: Tree) -> Tree:
    """The tree with all defaults filled in, in the order of the schema. Invalid values stay as they are."""
    return dict(_fill_config(RunConfig, tree, {}))


def default_of(field: FieldInfo) -> Any:
    """A field's default as plain data, or PydanticUndefined where a value is required."""
    default = field.get_default(call_default_factory=True, validated_data={})
    return default if default is PydanticUndefined else to_jsonable_python(default, inf_nan_mode="constants")


def _container(form: Literal["list", "mapping"], item: Shape) -> Shape:
    return LEAF if item.form == "leaf" else Shape(form, item=item)


def _fill(shape: Shape, value: Any, default: Any) -> Any:
    if shape.form == "component":
        return _fill_component(shape.group, value, default)
    if shape.form == "config" and isinstance(value, dict):
        assert shape.config is not None
        return _fill_config(shape.config, value, default if isinstance(default, dict) else {})
    if shape.form == "list" and isinstance(value, list):
        assert shape.item is not None
        return [_fill(shape.item, item, None) for item in value]
    if shape.form == "mapping" and isinstance(value, dict):
        assert shape.item is not None
        return {key: _fill(shape.item, item, None) for key, item in value.items()}
    return value


def _fill_component(group: str, value: Any, default: Any) -> Any:
    """A component's own defaults, or those from its owner's field as long as the kind is the one in that field."""
    if isinstance(value, str) and "${" not in value:
        value = {"kind": value}
    default = default if isinstance(default, dict) else {}
    if not isinstance(value, dict) or not isinstance(kind := value.get("kind", default.get("kind")), str):
        return value
    value = {"kind": kind, **value}
    try:
        config = component_config(group, kind)
    except ConfigError:
        return value  # validation reports it, with the key and its source
    return _fill_config(config, value, default if default.get("kind") == kind else {})


def _fill_config(config: type[Config], value: Tree, defaults: Tree) -> Tree:
    if config is Hook:  # unset amounts of a hook mean "not used", so they are left out
        return value
    filled: Tree = {}
    shapes = _field_shapes(config)
    for name, field in config.model_fields.items():
        default = defaults[name] if name in defaults else default_of(field)
        current = value.get(name, default)
        if current is not PydanticUndefined:
            filled[name] = _fill(shapes[name], current, default)
    return {**filled, **{key: inner for key, inner in value.items() if key not in filled}}
