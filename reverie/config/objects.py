"""Translate Python objects given to ``train`` into the words of a command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from pydantic import BaseModel

from reverie.config.presets import algorithm_names
from reverie.config.yaml_text import parse_value
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.envs.objects import describe_object

DEFAULT_ALGORITHM = "ppo"
"""Works with all kinds of observations and actions."""


def describe_order(
    env: Any, algorithm: Any = None, words: Sequence[Any] = (), overrides: Mapping[str, Any] | None = None
) -> tuple[str, list[str]]:
    """``<env>:<variant>`` and the words after it, for an env and an algorithm given by name or as objects."""
    env_id, settings = describe_object(env)
    given = [_check_word(word) for word in ([words] if isinstance(words, str) else words)]
    return _spec(env_id, env, algorithm), [*as_words(settings), *given, *as_words(overrides or {})]


def as_words(overrides: Mapping[str, Any]) -> list[str]:
    """Settings by dotted or nested keys as ``key=value`` words."""
    if not isinstance(overrides, Mapping):
        raise ConfigError(
            f"overrides must map keys to values; it is of type {type(overrides).__name__}.",
            "Write overrides={'algorithm.gamma': 0.99}, or give the words one by one: 'algorithm.gamma=0.99'.",
        )
    wrong = next((key for key in overrides if not isinstance(key, str) or "=" in key), None)
    if wrong is not None:
        raise ConfigError(f"{wrong!r} is not a key.", "Write overrides={'algorithm.gamma': 0.99}, for example.")
    return [f"{key}={_as_text(_plain(value, key))}" for key, value in overrides.items()]


def whole_number(name: str, value: Any) -> int | None:
    """A budget as an int. Accepts 1e5."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if value is None or (is_number and math.isfinite(value) and value == int(value)):
        return None if value is None else int(value)
    raise ConfigError(f"{name} must be a whole number; it is {value!r}.", f"Write {name}=10_000, for example.")


def _spec(env_id: str, env: Any, algorithm: Any) -> str:
    if isinstance(env, str):
        tail = env.rpartition(":")[2] if ":" in env else ""
        if algorithm is None:
            return env
        if tail in algorithm_names():
            raise ConfigError(f"'{env}' names an algorithm, and so does algorithm={algorithm!r}.", "Keep one of them.")
    return f"{env_id}:{_algorithm_name(algorithm)}"


def _algorithm_name(algorithm: Any) -> str:
    if isinstance(algorithm, str | None):
        return algorithm or DEFAULT_ALGORITHM
    return _path(algorithm, "algorithm")


def _check_word(word: Any) -> str:
    if isinstance(word, str | PathLike):
        return fspath(word)
    fix = "Give a dict as overrides={...}." if isinstance(word, Mapping) else "Write 'algorithm.gamma=0.99'."
    raise ConfigError(f"Presets and settings are text, not {type(word).__name__}: {word!r}", fix)


def _plain(value: Any, key: str) -> Any:
    """The value as plain data for YAML. A class becomes its dotted path."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, key) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, PathLike):
        return fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _path(value, key)


def _path(found: Any, what: str) -> str:
    if not callable(found):
        raise ConfigError(
            f"{what}: a {type(found).__name__} cannot be written into a config.",
            "Give numbers, text, lists, dicts, or a class.",
        )
    path = registry.path_of(found)
    if path is None:
        name = getattr(found, "__qualname__", repr(found))
        raise ConfigError(f"{what}: '{name}' cannot be imported by its name.", "Define it at the top of a module.")
    return path


def _as_text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    is_clear = isinstance(value, str) and value == value.strip() and value[:1] not in ("", "[", "{", "'", '"')
    return value if is_clear and parse_value(value) == value else json.dumps(value, ensure_ascii=False)
