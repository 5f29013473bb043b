"""Turn a tree of values into a checked RunConfig, and report every problem at once.

Components are validated one at a time through the registry, so plug-ins need no union type and only the classes of
chosen kinds are imported. pydantic's messages are translated: each problem names the dotted key, the value, its source
and the fix.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from reverie.config.fields import Shape, component_config, field_shape, fill_defaults
from reverie.config.path_names import PathNames, hook_name
from reverie.config.phases import Hook, Phase
from reverie.config.schema import RunConfig
from reverie.config.tree import Path, Tree, get, join_path, leaves
from reverie.core import registry
from reverie.core.config import Config
from reverie.core.errors import ConfigError, did_you_mean, nearest

ConfigType = TypeVar("ConfigType", bound=Config)
_BAD = object()
_MESSAGES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "too_short": "needs at least {min_length}",
    "too_long": "takes at most {max_length}",
}
_KINDS_OF_VALUE = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "keys and values",
    "model": "keys and values",
    "none": "null",
}


@dataclass(frozen=True)
class Problem:
    """One problem of a config."""

    key: str
    value: str
    source: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        value = f" = {self.value}" if self.value else ""
        source = f" ({self.source})" if self.source else ""
        return f"{self.key or 'config'}{value}{source}: {self.what}." + (f" {self.fix}" if self.fix else "")


@dataclass
class _Validation:
    tree: Any
    sources: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: Path, what: str, fix: str = "") -> None:
        missing = object()
        value = get(self.tree, path, missing)
        shown = "" if value is missing else _shorten(value)
        key = PathNames(self.tree).shown(path)
        self.problems.append(Problem(key, shown, source_of(self.sources, key), what, fix))

    def value(self, shape: Shape, value: Any, path: Path) -> Any:
        """The validated value of any shape. Leaves are left to pydantic."""
        if shape.form == "component" and isinstance(value, dict):
            return self.component(shape.group, value, path)
        if shape.form == "config" and (isinstance(value, dict) or shape.config is Hook):
            assert shape.config is not None
            return self.config(shape.config, value, path)
        if shape.form == "list" and isinstance(value, list):
            assert shape.item is not None
            return _all_or_bad([self.value(shape.item, item, (*path, str(i))) for i, item in enumerate(value)])
        if shape.form == "mapping" and isinstance(value, dict):
            assert shape.item is not None
            items = [self.value(shape.item, item, (*path, key)) for key, item in value.items()]
            return _BAD if _all_or_bad(items) is _BAD else dict(zip(value, items, strict=True))
        if shape.form == "component":
            self.add(path, "needs a kind", f"One of: {', '.join(registry.kinds(shape.group))}.")
            return _BAD
        return value

    def component(self, group: str, value: Tree, path: Path) -> Any:
        kind = value.get("kind")
        if not isinstance(kind, str):
            self.add((*path, "kind"), "is missing", f"One of: {', '.join(registry.kinds(group))}.")
            return _BAD
        try:
            return self.config(component_config(group, kind), value, path)
        except ConfigError as error:
            self.add((*path, "kind"), error.message.removesuffix("."), error.fix)
            return _BAD

    def config(self, config: type[Config], value: Any, path: Path) -> Any:
        """Validate the parts first, then the config that contains them. An invalid part is reported once."""
        values = dict(value) if isinstance(value, dict) else value
        bad: set[str] = set()
        if config is Hook:
            if not _is_hook(value):
                self.add(path, "a hook is one name with its amounts", "Write it like {collect: {rows: 64}}.")
                return _BAD
        else:
            for name, info in config.model_fields.items():
                if values.get(name) is not None:
                    values[name] = self.value(field_shape(info), values[name], (*path, name))
                    if values[name] is _BAD:
                        bad.add(name)
        try:
            whole = config.model_validate({k: v for k, v in values.items() if k not in bad} if bad else values)
        except ValidationError as error:
            self.translate(config, error, path, bad)
            return _BAD
        return _BAD if bad else whole

    def translate(self, config: type[Config], error: ValidationError, path: Path, bad: set[str]) -> None:
        by_path: dict[Path, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            located = detail["loc"] and str(detail["loc"][0])
            if located not in bad and (located or not bad):
                by_path.setdefault(self.address(config, detail, path), []).append(detail)
        for where, details in by_path.items():
            if details[0]["type"] == "extra_forbidden":
                known = [name for name in config.model_fields if (config, name) != (Hook, "name")]
                if config is Phase:
                    known += [name for hook in get(self.tree, (*path, "hooks")) or () if (name := hook_name(hook))]
                kind = get(self.tree, (*path, "kind"))
                of_kind = f" for the kind {kind}" if isinstance(kind, str) else ""
                self.add(where, f"there is no such key{of_kind}", self.suggest(where, known))
            else:
                what = " or ".join(dict.fromkeys(_message(detail) for detail in details))
                self.add(where, what, self.example_list(config, where, what))

    def example_list(self, config: type[Config], path: Path, what: str) -> str:
        """How to write a single number as a list. Empty if the problem is another one."""
        value, info = get(self.tree, path), config.model_fields.get(path[-1]) if path else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if what != "must be a list" or info is None or not is_number or field_shape(info).form != "leaf":
            return ""
        return f"Write '{PathNames(self.tree).shown(path)}=[{value},{value}]', for example."

    def suggest(self, path: Path, known: Sequence[str]) -> str:
        """A key to suggest: the same name in another section, else a similar one here, else one elsewhere."""
        paths = [other for other, _ in leaves(self.tree) if other != path and not any(map(str.isdigit, other))]
        similar = difflib.get_close_matches(path[-1], {other[-1] for other in paths}, n=1, cutoff=0.75)
        same, alike = (
            [join_path(other) for other in paths if other[-1] in names] for names in ([path[-1]], similar)
        )  # phases and their hooks, which are numbered, have too many keys of one name
        if not same and (here := did_you_mean(path[-1], known)):
            return here
        found = same or alike
        return f"Did you mean '{min(found, key=len)}'?" if found else nearest(path[-1], known)

    def address(self, config: type[Config], detail: ErrorDetails, path: Path) -> Path:
        """The path in the tree, without pydantic's names of union members."""
        raw = get(self.tree, path)
        if config is Hook and isinstance(raw, dict) and "name" not in raw and len(raw) == 1:
            path = (*path, *raw)
        for part in map(str, detail["loc"]):
            if detail["type"] == "missing" or get(self.tree, (*path, part), _BAD) is not _BAD:
                path = (*path, part)
        return path


def load_config(tree: Tree, sources: Mapping[str, str] | None = None) -> RunConfig:
    """The checked, frozen config, or one ConfigError that lists every problem."""
    return load_part(RunConfig, fill_defaults(tree), (), sources)


def load_part(
    config: type[ConfigType], value: Any, path: Path = (), sources: Mapping[str, str] | None = None
) -> ConfigType:
    """A part of the tree as its config. ``path`` is the key of that part."""
    tree: Any = value
    for key in reversed(path):
        tree = {key: tree}
    validation = _Validation(tree, sources or {})
    result = validation.config(config, value, path)
    if validation.problems:
        raise ProblemsError(validation.problems)
    assert isinstance(result, config)
    return result


class ProblemsError(ConfigError):
    """All problems of a config, one line each, in the order of the schema."""

    def __init__(self, problems: list[Problem]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        many = f"The config has {len(problems)} problems:\n{lines}"
        super().__init__(str(problems[0]) if len(problems) == 1 else many)
        self.problems = problems


def source_of(sources: Mapping[str, str], key: str) -> str:
    """The source of a key: its own, else that of the value around it, else the last source of a value inside it."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        if (known := ".".join(parts[:length])) in sources:
            return sources[known]
    below = [source for known, source in sources.items() if known.startswith(key + ".")]
    return next((source for source in reversed(below) if source != "default"), below[0] if below else "")


def _message(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind.startswith(("greater_than", "less_than")) and str(detail["input"]).lower().strip("+-. ") == "nan":
        return "must be a finite number"  # NaN would be reported as breaking the first bound
    if kind == "value_error":
        return str(context["error"])
    if kind in _MESSAGES:
        return _MESSAGES[kind].format(**context)
    expected = _KINDS_OF_VALUE.get(kind.split("_")[0])
    return f"must be {expected}" if expected else detail["msg"][:1].lower() + detail["msg"][1:]


def _all_or_bad(items: list[Any]) -> Any:
    return _BAD if any(item is _BAD for item in items) else items


def _is_hook(value: Any) -> bool:
    """Whether a hook has a valid form: a bare name, a name above amounts, or all keys side by side."""
    if isinstance(value, dict) and "name" not in value:
        return len(value) == 1 and all(isinstance(amounts, dict | None) for amounts in value.values())
    return isinstance(value, (dict, str))


def _shorten(value: Any) -> str:
    """A value as the user would write it, shortened if it is long."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
