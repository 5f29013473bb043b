"""YAML in and out, with fewer surprises than YAML's own rules.

PyYAML reads ``1e6`` as text, ``off`` as False, ``1:30`` as 90 and ``010`` as 8, and OmegaConf's loader does
all but the first. Here ``1e6`` is a number, only ``true`` and ``false`` are truth values, and what is not
plainly a number is text. Tags are refused, because they name code; so are anchors and double keys, because
they hide where a value comes from.
"""

from __future__ import annotations

import copy
import math
import re
from functools import lru_cache
from typing import Any

import yaml

from reverie.config.tree import is_schedule
from reverie.core.errors import ConfigError
from reverie.store.documents import DEEPEST, LONGEST_NUMBER

_INT = re.compile(r"^[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.inf)$|^\.nan$"
)
_SCALARS = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ("~", "n", "N", "")),
    ("tag:yaml.org,2002:int", _INT, "-+0123456789"),
    ("tag:yaml.org,2002:float", _FLOAT, "-+0123456789."),
)
SHORT_LIST_CHARACTERS = 80


class _Loader(yaml.SafeLoader):
    """Plain data only."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own name and form)

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        where = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"YAML anchors and aliases are not read ({where}).", "Write ${other.key} instead.")
        if getattr(event, "tag", None):
            raise ConfigError(f"The YAML tag '{event.tag}' is refused ({where}).", "Write plain values only.")
        self.depth += 1
        if self.depth > DEEPEST:
            raise ConfigError(f"It is nested too deeply ({where}).", "No config needs that; check the file.")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in mapping:
                raise ConfigError(f"The key '{key}' is repeated (line {key_node.start_mark.line + 1}).", "Remove one.")
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 readers would misread, and what our own loader would take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _construct_mapping(loader: _Loader, node: Any) -> dict[Any, Any]:
    return loader.construct_mapping(node)


def _construct_int(_: _Loader, node: Any) -> int:
    text = node.value.replace("_", "")
    if len(text) > LONGEST_NUMBER:
        raise ConfigError(f"A number of {len(text):,} digits is too long.", "No setting needs that.")
    return int(text)


def _construct_float(loader: _Loader, node: Any) -> float:
    value: float = loader.construct_yaml_float(node)
    if math.isinf(value) and "inf" not in node.value:
        raise ConfigError(f"The number {node.value} is too large.", "Write .inf if you mean infinity.")
    return value


def _represent_list(dumper: _Dumper, value: list[Any] | tuple[Any, ...]) -> Any:
    """Short lists of plain values go on one line. A list of mappings takes several."""
    is_plain = not any(isinstance(item, (dict, list, tuple)) for item in value)
    is_short = sum(len(str(item)) + 2 for item in value) <= SHORT_LIST_CHARACTERS
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=is_plain and is_short)


def _represent_mapping(dumper: _Dumper, value: dict[str, Any]) -> Any:
    """Write a schedule on one line."""
    flow = not value or is_schedule(value)
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=flow)


for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(tuple, _represent_list)
_Dumper.add_representer(dict, _represent_mapping)


def load_yaml(text: str, origin: str) -> Any:
    """The plain data in a YAML text; ``origin`` names it in errors."""
    try:
        return copy.deepcopy(_parse(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin} is not valid YAML: {_explain(error)}.", "Correct that line.") from error
    except RecursionError as error:
        raise ConfigError(f"{origin} is nested too deeply.", "No config needs that; check the file.") from error
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error.message}", error.fix) from error


@lru_cache(maxsize=32)
def _parse(text: str) -> Any:
    """Cached, because a start reads the same config.yaml several times, at 50 ms each."""
    return _Loader(text).get_single_data()


def parse_value(text: str) -> Any:
    """A value as typed on a command line: a number, true, null, [64, 64], {a: 1}, 'quoted', or else text."""
    if text[:1] in ("[", "{", "'", '"'):
        return load_yaml(text, f"The value {text}")
    loader = _Loader("")
    plain = loader.resolve(yaml.ScalarNode, text, (True, False))
    tag = plain if text else "tag:yaml.org,2002:str"
    return loader.construct_object(yaml.ScalarNode(tag, text), deep=True)


def dump_yaml(tree: Any) -> str:
    """Plain data as YAML, keys in the given order. :func:`load_yaml` reads it back unchanged."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _explain(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(problem)
